"""The OpenAPI document of a mirror: the interface's, its extensions, and the fields it never knew.

The extensions are in `mirror_openapi.yaml`. The fields depend on the warehouse, so a publication
may change the document.
"""

import asyncio
from collections.abc import Callable, Collection
from copy import deepcopy
from functools import lru_cache
from importlib.resources import files
from typing import Any, Final

import msgspec
import yaml
from starlette.responses import Response
from starlette.types import Scope

from catalog.contract import constants
from catalog.contract.openapi import Node, openapi_document
from catalog.contract.records import EVENT_FIELDS
from catalog.server.docs_page import render_docs
from catalog.server.exchange import Exchange, Handler
from catalog.server.routes import docs_response
from pipeline.mirror.knowledge_routes import FIELD_NAMES

_EXTENSION: Final = "x-extension"
NEVER_KNOWN: Final = "x-never-known"
_MADE_KEPT: Final = 4
_NULLABLE: Final = ("slug", "categories", "createdAt", "updatedAt")
"""Fields of an event that are never null at the service, but may be unknown in a warehouse."""


class DocumentRoutes:
    """Handlers of the document and its page; `never_known` returns the columns, and may query."""

    def __init__(
        self, never_known: Callable[[], Collection[str]], *, needs_key: bool, clock_moves: bool
    ) -> None:
        self._never_known = never_known
        self._needs_key = needs_key
        self._clock_moves = clock_moves

    def handlers(self) -> dict[str, Handler]:
        return {constants.OPENAPI_PATH: self.get_document, "/docs": self.get_page}

    async def get_document(self, scope: Scope, exchange: Exchange) -> Response:
        exchange.route = "openapi"
        return Response(await self._made(_encode), media_type="application/json")

    async def get_page(self, scope: Scope, exchange: Exchange) -> Response:
        exchange.route = "docs"
        return docs_response(await self._made(_render))

    async def _made(self, make: Callable[[tuple[str, ...], bool, bool], bytes]) -> bytes:
        return await asyncio.to_thread(
            lambda: make(name_fields(self._never_known()), self._needs_key, self._clock_moves)
        )


def name_fields(columns: Collection[str]) -> tuple[str, ...]:
    """Return the fields of an event that are null if no version knows these columns."""
    # `impact` shows the band where the score is not known.
    if "impact_band" not in columns:
        columns = set(columns) - {"impact"}
    names = set(map(FIELD_NAMES.get, columns))
    return tuple(name for name in EVENT_FIELDS if name in names)


@lru_cache(maxsize=_MADE_KEPT)
def _encode(never_known: tuple[str, ...], needs_key: bool, clock_moves: bool) -> bytes:
    document = mirror_document(never_known, needs_key=needs_key, clock_moves=clock_moves)
    return msgspec.json.encode(document)


@lru_cache(maxsize=_MADE_KEPT)
def _render(never_known: tuple[str, ...], needs_key: bool, clock_moves: bool) -> bytes:
    document = mirror_document(never_known, needs_key=needs_key, clock_moves=clock_moves)
    return render_docs(document).encode()


def mirror_document(
    never_known: Collection[str], *, needs_key: bool, clock_moves: bool = False
) -> Node:
    """Return the document of a mirror that never knew some fields of an event.

    `clock_moves` is true for a replay.
    """
    text = files("pipeline.mirror").joinpath("mirror_openapi.yaml").read_text(encoding="utf-8")
    extensions: Node = yaml.safe_load(text)
    document = deepcopy(openapi_document())
    parts = document["components"]
    for kind in ("parameters", "headers", "responses", "schemas"):
        parts[kind] |= _mark_each(extensions[kind])
    document["paths"] |= _mark_each(extensions["paths"])
    for path, item in document["paths"].items():
        if path.startswith("/v2/") and path != constants.OPENAPI_PATH:
            _add_as_of(item["get"])
    codes = parts["schemas"]["ErrorCode"]
    codes["enum"] += list(extensions["error_codes"])
    codes["x-codes"] |= extensions["error_codes"]
    publication = {**extensions["publication"], _EXTENSION: True}
    parts["schemas"]["Health"]["properties"]["publication"] = publication
    for event in ("Event", "CancelledEvent"):
        fields = parts["schemas"][event]["properties"]
        for name in _NULLABLE:
            fields[name]["nullable"] = True
        for name in never_known:
            # The two schemas share their fields.
            if NEVER_KNOWN not in fields[name]:
                _mark_never_known(fields[name], extensions["never_known_field"])
    # A coin that only events name has an empty address.
    parts["schemas"]["Coin"]["properties"]["iconUrl"].pop("format")
    document[NEVER_KNOWN] = list(never_known)
    about = [extensions["description"], extensions["as_of"]]
    if clock_moves:
        about.append(extensions["virtual_clock"])
    if not needs_key:
        document["security"].insert(0, {})
        about.append(extensions["loopback"])
    if never_known:
        names = ", ".join(f"`{name}`" for name in never_known)
        about.append(f"{extensions['never_known'].strip()} {names}.")
    else:
        about.append(extensions["all_known"])
    info = document["info"]
    info["description"] = "\n\n".join(part.strip() for part in (*about, info["description"]))
    return document


def _mark_each(nodes: Node) -> Node:
    return {name: {**node, _EXTENSION: True} for name, node in nodes.items()}


def _add_as_of(operation: Node) -> None:
    for name in ("AsOf", "AsOfHeader"):
        operation.setdefault("parameters", []).append({"$ref": f"#/components/parameters/{name}"})
    responses: dict[str, Any] = operation["responses"]
    responses["200"].setdefault("headers", {})["X-As-Of"] = {"$ref": "#/components/headers/AsOf"}
    responses.setdefault("400", {"$ref": "#/components/responses/InvalidRequest"})
    responses["422"] = {"$ref": "#/components/responses/AsOfOutOfRange"}
    operation["responses"] = dict(sorted(responses.items()))


def _mark_never_known(field: Node, sentence: str) -> None:
    field[NEVER_KNOWN] = True
    field["description"] = f"{field['description'].strip()} {sentence}"
    if "oneOf" not in field:
        field["nullable"] = True
