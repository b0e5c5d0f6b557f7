"""Datasette as an ASGI application, for uvicorn's `--factory`; started in the run's folder."""

import json
import os
from pathlib import Path

from datasette.app import Datasette  # type: ignore[import-untyped]
from starlette.types import ASGIApp

FOLDER = "ALMANAC_BENCH_DATASETTE"
"""The variable of the environment that names the folder."""


def app() -> ASGIApp:
    folder = Path(os.environ[FOLDER])
    datasette = Datasette(
        immutables=[str(folder / "catalog.db")],
        inspect_data=json.loads((folder / "inspect.json").read_text()),
        metadata=json.loads((folder / "metadata.json").read_text()),
        settings=json.loads((folder / "settings.json").read_text()),
    )
    application: ASGIApp = datasette.app()
    return application
