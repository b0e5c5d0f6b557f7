"""A small home with a file of every kind, and damage by disk or by hand to one of them.

Belongs here: the home, the damage. Does not: what must be detected and repaired (test_bit_rot.py).
"""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from random import Random

from tests.history.stories.handmade import DAY, HOUR, SOURCE, STARTS, Content, HandmadeBatch, land
from warehouse.history.merge import merge
from warehouse.home import Home
from warehouse.landing.batches import Feed, Pull, Scope

_PARTS = ("landing", "checkpoints", "parquet", "state", "home.json", "warehouse.duckdb")
_CONTENTS = [
    Content(0, "Launch", 1, False, 6.0, ("bitcoin",)),
    Content(1, "Halving", 5, True, None, ("bitcoin", "ethereum")),
    Content(2, " Launch ", 60, False, 1.5, ("ethereum",)),
]
_UNREADABLE = {"title": "no id"}


def make_home(root: Path) -> Home:
    """Make a home with two merged days and a pending batch: most feeds, rejects, snapshots,
    cancellations, a backfill, a released batch and a quarantined one."""
    home = Home(root)
    home.claim(SOURCE)
    all_contents = tuple(enumerate(_CONTENTS))
    _land(home, "export", 6, all_contents)
    _land(home, "coins", 7)
    _land(home, "cancellations", 8, all_contents[:1])
    released_id = _list(home, STARTS + 9 * HOUR, [_UNREADABLE] * 12)
    merge(home)
    home.landing.release(released_id)
    merge(home)
    _land(home, "coins", 31)
    land_change(home, 32)
    _list(home, STARTS + 33 * HOUR, [_UNREADABLE])
    _list(home, STARTS + 34 * HOUR, [_UNREADABLE] * 12)
    _list(home, STARTS + 35 * HOUR, [], lower=STARTS - 400 * DAY, upper=STARTS - 370 * DAY)
    merge(home)
    land_look_up(home, 50)
    logs = home.state / "requests"
    logs.mkdir(parents=True)
    line = {"at": STARTS.isoformat(), "path": "/v2/events", "status": 200, "attempt": 1}
    (logs / "2021-03-01.jsonl").write_text(json.dumps(line) + "\n")
    return home


def land_look_up(home: Home, hour: int) -> None:
    """Land a look-up of one event, which is merged by the next merge."""
    _land(home, "event", hour, ((2, _CONTENTS[1]),))


def land_change(home: Home, hour: int) -> None:
    """Land a delivery with another title of an event."""
    changed = Content(3, f"Halved {hour}", 6, False, 2.0, ("bitcoin",))
    _land(home, "deliveries", hour, ((1, changed),))


def _land(home: Home, feed: Feed, hour: int, shown: tuple[tuple[int, Content], ...] = ()) -> None:
    land(HandmadeBatch(feed, hour, 1, "elite", shown, True, (-30, 90), 200), home.landing, hour)


def _list(
    home: Home,
    at: datetime,
    rows: list[dict[str, str]],
    *,
    lower: datetime | None = None,
    upper: datetime | None = None,
) -> str:
    """Land a list of rows; return the batch's id."""
    pull = Pull(
        feed="events",
        scope=Scope(lower=lower or at, upper=upper or at + DAY),
        plan="elite",
        source=SOURCE,
        observed_at=at,
        content_at=at,
        landed_at=at,
        requests=1,
        why_incomplete=None if lower else "cut short",
    )
    body = json.dumps({"data": rows, "meta": {"total": len(rows)}}).encode()
    return home.landing.land(pull, [(body, None)]).batch_id


@dataclass(frozen=True, slots=True)
class Harm:
    """What was done to a file, and how to undo it."""

    what: str
    name: str
    undo: Callable[[], None]

    def __str__(self) -> str:
        return f"{self.what} of {self.name}"


def files_of(home: Home) -> list[Path]:
    """Return the files of a home, except locks and Dagster's files."""
    found = [path for part in _PARTS for path in [home.root / part, *(home.root / part).rglob("*")]]
    return sorted(path for path in found if path.is_file() and path.suffix != ".lock")


def harm(home: Home, random: Random) -> Harm:
    """Damage a random file of a home in a random way."""
    files = files_of(home)
    # Each kind of file is equally likely, however many files it has.
    kinds: dict[str, list[Path]] = {}
    for path in files:
        parts = path.relative_to(home.root).parts
        kinds.setdefault("/".join(parts[:2]) + path.suffix, []).append(path)
    path = random.choice(kinds[random.choice(sorted(kinds))])
    what = random.choice(("flip", "flip", "cut", "empty", "delete", "swap", "folder"))
    original = path.read_bytes()
    others = [file for file in files if file.read_bytes() != original]
    other = random.choice(others)
    other_original = other.read_bytes()
    if not original and what in ("flip", "cut", "empty"):
        what = "delete"
    match what:
        case "flip":
            place = random.randrange(len(original))
            flipped = original[place] ^ (1 << random.randrange(8))
            path.write_bytes(original[:place] + bytes([flipped]) + original[place + 1 :])
            what = f"flip at {place}"
        case "cut":
            path.write_bytes(original[: random.randrange(len(original))])
        case "empty":
            path.write_bytes(b"")
        case "swap":
            path.write_bytes(other_original)
            other.write_bytes(original)
            what = f"swap with {other.relative_to(home.root)}"
        case _:
            path.unlink()
            if what == "folder":
                path.mkdir()

    def undo() -> None:
        _restore(path, original)
        if what.startswith("swap"):
            _restore(other, other_original)

    return Harm(what, str(path.relative_to(home.root)), undo)


def _restore(path: Path, original: bytes) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(original)
