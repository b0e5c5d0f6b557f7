"""Dagster's empty databases, made once in a process of tests and copied for its further homes.

Making them takes a sixth of a second, and hundreds of tests have a home of their own. The copies
have one id of their storage, which Dagster uses for its telemetry alone.
"""

from pathlib import Path

from pipeline import instance
from pipeline.runs.store import STORES

make = instance._make_in
"""Makes them, as a program does that has one home."""
_made: dict[str, bytes] = {}


def make_or_copy(folder: Path) -> None:
    if not _made:
        make(folder)
        _made.update({name: (folder / name).read_bytes() for name in STORES})
    for name, content in dict(_made).items():
        if not (folder / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
