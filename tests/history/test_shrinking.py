"""A catalog that shrinks, suddenly or slowly, with truncated exports between.

Each planted absence is found at the second export that lacks it, at the latest, and no event that
the last export showed is ever missing.
"""

import random
from datetime import datetime
from pathlib import Path

import pytest

from tests.history.stories.disk import without_syncs
from tests.history.stories.handmade import HandmadeHome, at, event
from warehouse.landing.batches import ENOUGH_ROWS_SHARE

EVENTS = [f"evt_{number:03}" for number in range(100)]
WHENS = [f"{day:02} 06:00" for day in range(1, 17)]
TRUNCATED = 7
"""Each seventh export lacks half of its rows."""
VANISHING = {
    # How many events vanish with which export.
    "few, then most": {2: 1, 4: 3, 9: 60},
    "half, and half again, before a truncated export": {4: 40, 12: 30},
    "slowly, and at once": {**dict.fromkeys(range(3, 15), 2), 10: 30},
}


def make_exports(vanishing: dict[int, int], seed: int) -> list[set[str]]:
    """Return the events of each export."""
    chosen, left = random.Random(seed), list(EVENTS)
    exports = []
    for number in range(len(WHENS)):
        for _ in range(vanishing.get(number, 0)):
            left.remove(chosen.choice(left))
        is_truncated = number % TRUNCATED == TRUNCATED - 1
        exports.append(set(chosen.sample(left, len(left) // 2) if is_truncated else left))
    return exports


def find_missing(exports: list[set[str]]) -> list[dict[str, datetime]]:
    """Return what is missing after each export: an event and since when."""
    missing: dict[str, datetime] = {}
    doubted: set[str] = set()
    states = []
    for when, shown in zip(WHENS, exports, strict=True):
        missing = {name: since for name, since in missing.items() if name not in shown}
        doubted -= shown
        new = set(EVENTS) - shown - missing.keys() - doubted
        found = set(doubted)
        if len(shown) >= ENOUGH_ROWS_SHARE * (len(shown) + len(new)):
            found |= new
        doubted = (doubted | new) - found
        missing |= dict.fromkeys(found, at(when))
        states.append(missing)
    return states


@pytest.mark.parametrize("name", VANISHING)
def test_every_absence_is_found_at_the_second_export_that_lacks_it(
    tmp_path: Path, name: str
) -> None:
    exports = make_exports(VANISHING[name], seed=len(name))
    expected = find_missing(exports)
    story = HandmadeHome(tmp_path / "home")
    with without_syncs():
        for when, shown in zip(WHENS, exports, strict=True):
            story.export(when, *(event(event_id) for event_id in sorted(shown)))
        story.merge()
    changes = story.rows("SELECT changed_at, event_id, missing_since FROM event_absences")
    found: dict[str, datetime] = {}
    before = set(EVENTS)
    for when, shown, missing in zip(WHENS, exports, expected, strict=True):
        found |= {name: since for changed, name, since in changes if changed == at(when)}
        assert {name: since for name, since in found.items() if since} == missing, when
        assert set(EVENTS) - before - shown <= missing.keys() <= set(EVENTS) - shown
        before = shown


def test_a_truncated_export_leaves_no_trace_but_its_flag(tmp_path: Path) -> None:
    stories = [HandmadeHome(tmp_path / name) for name in ("whole", "truncated")]
    for story in stories:
        for when in ("01 06:00", "02 06:00", "03 06:00"):
            cut = when.startswith("02") and story is stories[1]
            story.export(when, *map(event, EVENTS[: 50 if cut else None]))
        story.merge()
    whole, truncated = stories
    for table in ("event_versions", "event_absences"):
        columns = "* EXCLUDE (batch_id)"
        rows = f"SELECT {columns} FROM {table} ORDER BY ALL"
        assert truncated.rows(rows) == whole.rows(rows)
    ((flagged,),) = truncated.rows("SELECT flagged FROM batches WHERE flagged IS NOT NULL")
    assert flagged.startswith("50 of 100 events (50%) are newly absent")
    assert "`almanac batches release " in flagged
