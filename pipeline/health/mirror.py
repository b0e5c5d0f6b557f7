"""The check of `almanac doctor` on the mirror: its folder, its change feed, and whether it runs."""

import json
import socket
import sqlite3
import stat
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from warehouse.files.locks import is_held
from warehouse.history.warehouse_file import read_published
from warehouse.home import Home
from warehouse.sql import Statements

_SQL: Final = Statements(__package__)
_HOST: Final = "127.0.0.1"
_ANSWERS_WITHIN_S: Final = 3.0
_SECRETS: Final = ("keys.json", "endpoints.json", "cursor.key")


@dataclass(frozen=True, slots=True)
class RunCheck:
    """The result of one check: its subject, whether it holds, and what was found."""

    what: str
    holds: bool
    found: str


def check_mirror(home: Home, folder: Path, port: int) -> Iterator[RunCheck]:
    """Check a mirror's folder; a mirror that runs is asked at its default port of this machine.

    Nothing is changed, and no request leaves the machine.
    """
    exposed = [path.name for path in map(folder.joinpath, _SECRETS) if _is_open(path)]
    if exposed:
        found = f"others can read {', '.join(exposed)} in {folder}: almanac doctor --fix"
        yield RunCheck("mirror files", False, found)
    runs = is_held(folder / "server.lock")
    yield _check_feed(home, folder / "changes.sqlite", runs=runs)
    yield _check_answers(port) if runs else _check_port(port)


def _is_open(path: Path) -> bool:
    return path.exists() and bool(stat.S_IMODE(path.stat().st_mode) & 0o007)


def _check_feed(home: Home, path: Path, *, runs: bool) -> RunCheck:
    what = "mirror changes"
    if not path.exists():
        return RunCheck(what, True, "not recorded yet; the next `almanac serve` begins")
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as feed:
            recorded = feed.execute(_SQL["find_recorded_publication"]).fetchone()
    except sqlite3.Error as error:
        return RunCheck(
            what,
            False,
            f"{path} can't be read: {error}. Move it away; clients begin again with `since`",
        )
    published = read_published(home.warehouse)
    if recorded is None or published is None:
        return RunCheck(what, True, "no publication is recorded yet")
    until = datetime.fromisoformat(recorded[0])
    if until >= published.at:
        return RunCheck(what, True, "recorded up to the last publication")
    late = f"recorded up to the publication of {until:%F %T}, the last is of {published.at:%F %T}"
    if runs:
        return RunCheck(what, False, f"{late}: see `trouble` in /healthz, or the log of the mirror")
    return RunCheck(what, True, f"{late}; the next `almanac serve` records the rest")


def _check_answers(port: int) -> RunCheck:
    """Ask the mirror that holds the folder which publication it serves."""
    what, address = "mirror", f"http://{_HOST}:{port}/healthz"
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(address, timeout=_ANSWERS_WITHIN_S) as answer:
            served: dict[str, Any] = json.load(answer)["publication"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        return RunCheck(what, True, f"runs, but not at {_HOST} port {port}: {reason}")
    shown = f"runs, and serves the publication of {served['publishedAt']}"
    if served["trouble"]:
        return RunCheck(what, False, f"{shown}: {served['trouble']}")
    return RunCheck(what, True, shown)


def _check_port(port: int) -> RunCheck:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_HOST, port))
        except OSError:
            found = f"does not run, and another program uses port {port}: give --port"
            return RunCheck("mirror", True, found)
    return RunCheck("mirror", True, "does not run")
