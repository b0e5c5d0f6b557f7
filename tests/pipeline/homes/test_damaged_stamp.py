"""A damaged, missing or newer home.json: every command prints one line with the repair."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.history.stories.handmade import SOURCE
from tests.pipeline.conftest import Almanac
from tests.pipeline.homes.conftest import CopyTo
from warehouse.home import Home

COMMANDS = (
    *(("run",), ("merge",), ("replay",), ("status",), ("verify",), ("batches", "list")),
    *(("backfill", "--from", "2026-01-01"), ("sql", "SELECT 1"), ("ui",), ("budget",)),
)


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


HARMS: dict[str, Callable[[Path], object]] = {
    "garbage": lambda path: path.write_bytes(b"\xff\x00garbage"),
    "empty": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-20]),
    "flipped": lambda path: path.write_bytes(path.read_bytes().replace(b"hand", b"hanD")),
    "folder": _folder,
    "wrong types": lambda path: path.write_text(json.dumps({"source": 7, "format": "1"})),
    "no object": lambda path: path.write_text("[]"),
    "no format": lambda path: path.write_text(json.dumps({"source": SOURCE, "format": 0})),
    "manifest": lambda path: path.write_bytes(
        next(path.parent.glob("landing/batches/*/*.json")).read_bytes()
    ),
    "gone": Path.unlink,
}


@pytest.fixture(scope="module")
def made(every_kind: CopyTo, tmp_path_factory: pytest.TempPathFactory) -> Home:
    return every_kind(tmp_path_factory.mktemp("stamped") / "home")


@pytest.mark.parametrize("harm", HARMS)
def test_each_command_names_the_repair_of_a_damaged_stamp_in_one_line(
    harm: str, made: Home, almanac: Almanac
) -> None:
    stamp = made.root / "home.json"
    held = stamp.read_bytes()
    HARMS[harm](stamp)
    for words in COMMANDS if harm == "garbage" else (("status",), ("merge",)):
        done = almanac(*words, code=1, home=str(made.root))
        assert "almanac doctor --fix" in " ".join(done.output.split()), words
    if harm == "garbage":
        almanac("doctor", "--fix", code=1, home=str(made.root))  # The sandbox is no source of it.
    made.rebuild_stamp()
    assert made.stamp() is not None
    assert stamp.read_bytes() == held


def test_a_newer_format_is_left_alone(made: Home, almanac: Almanac) -> None:
    stamp = made.root / "home.json"
    held = stamp.read_bytes()
    newer = json.dumps({"source": SOURCE, "format": 2}).encode()
    stamp.write_bytes(newer)
    done = almanac("doctor", "--fix", code=1, home=str(made.root))
    assert "upgrade Almanac" in " ".join(done.output.split())
    assert stamp.read_bytes() == newer
    stamp.write_bytes(held)


def test_a_stamp_is_not_guessed_where_nothing_is_landed(tmp_path: Path, almanac: Almanac) -> None:
    (tmp_path / "home.json").write_bytes(b"")
    done = almanac("doctor", "--fix", code=1, home=str(tmp_path))
    assert "write" in done.output
    assert (tmp_path / "home.json").read_bytes() == b""
