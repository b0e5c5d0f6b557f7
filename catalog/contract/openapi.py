"""The interface as an OpenAPI 3.0 document, read from `openapi.yaml` beside this module."""

from functools import cache
from importlib.resources import files
from typing import Any

import msgspec
import yaml


@cache
def openapi_document() -> dict[str, Any]:
    """Return the document. It is read once and shared: do not change it."""
    text = files("catalog.contract").joinpath("openapi.yaml").read_text(encoding="utf-8")
    document: dict[str, Any] = yaml.safe_load(text)
    return document


@cache
def openapi_json() -> bytes:
    """Return the document as UTF-8 JSON, as GET /v2/openapi.json answers it."""
    return msgspec.json.encode(openapi_document())
