"""Datasette on uvicorn: `python -m bench.server.peers.datasette_app`."""

import argparse
import json
from pathlib import Path

import uvicorn
from datasette.app import Datasette  # type: ignore[import-untyped]
from starlette.types import ASGIApp


def app(folder: Path) -> ASGIApp:
    datasette = Datasette(
        immutables=[str(folder / "catalog.db")],
        inspect_data=json.loads((folder / "inspect.json").read_text()),
        metadata=json.loads((folder / "metadata.json").read_text()),
        settings=json.loads((folder / "settings.json").read_text()),
    )
    application: ASGIApp = datasette.app()
    return application


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    arguments = parser.parse_args()
    uvicorn.run(
        app(arguments.folder),
        host=arguments.host,
        port=arguments.port,
        http="httptools",
        log_level="warning",
        access_log=False,
    )


if __name__ == "__main__":
    main()
