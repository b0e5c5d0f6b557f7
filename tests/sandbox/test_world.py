"""The synthetic catalog: a pure function of seed, pace and time."""

import hashlib
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.sandbox.world.world import TrueEvent, Version, World

NOW = datetime(2018, 11, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
TEXTS = (
    *("title", "description", "categories", "coins"),
    *("impact_summary", "source_url", "snapshot_url"),
)


@pytest.fixture(scope="module")
def world() -> World:
    return World(1)


@pytest.fixture(scope="module")
def histories(world: World) -> list[tuple[Version, ...]]:
    """The versions of the events announced in the 22 months to NOW, as known then."""
    changes = world.changes(datetime(2017, 1, 1, tzinfo=UTC), NOW)
    return [
        world.history(change.event_id, NOW) for change in changes if change.kinds[0] == "created"
    ]


def names_of_changes(old: TrueEvent, new: TrueEvent) -> set[str]:
    """Return the kinds of the differences, derived only from their definitions."""
    names = set()
    if (old.date, old.date_end) != (new.date, new.date_end):
        names.add("rescheduled")
    if old.is_estimated != new.is_estimated:
        names.add("made_estimated" if new.is_estimated else "made_exact")
    dated_as_before = not names
    if old.impact != new.impact:
        names.add("rescored")
    reworded = (old.displayed_date, old.date_type) != (new.displayed_date, new.date_type)
    if any(getattr(old, name) != getattr(new, name) for name in TEXTS) or (
        dated_as_before and reworded
    ):
        names.add("revised")
    if old.last_verified_at != new.last_verified_at:
        names.add("verified")
    return names


def test_results_do_not_depend_on_earlier_queries() -> None:
    early, late = datetime(2018, 3, 5, 7, 30, tzinfo=UTC), datetime(2019, 9, 1, tzinfo=UTC)
    forward, backward = World(3), World(3)
    early_first = forward.events_at(early), forward.changes(early, late), forward.events_at(late)
    late_first = backward.events_at(late), backward.changes(early, late), backward.events_at(early)
    assert early_first == late_first[::-1]
    assert forward.cancellations_at(early) == backward.cancellations_at(early)
    some_id = next(iter(early_first[0]))
    assert forward.history(some_id, early) == World(3).history(some_id, early)
    assert forward.coins_at(early) == backward.coins_at(early)
    narrow, noon = World(3), early.replace(hour=12)
    narrow.changes(noon, noon + HOUR)
    assert narrow.changes(noon - 3 * DAY, noon + DAY) == forward.changes(noon - 3 * DAY, noon + DAY)


def test_pace_changes_lives_but_not_announcements() -> None:
    start, end = datetime(2017, 1, 1, tzinfo=UTC), datetime(2018, 1, 1, tzinfo=UTC)
    announced = []
    others = []
    for pace in (0, 1, 3):
        world = World(pace=pace)
        happened = world.changes(start, end)
        created = [change for change in happened if change.kinds == ("created",)]
        announced.append([world.event_at(change.event_id, change.at) for change in created])
        others.append(len(happened) - len(created))
    assert announced[0] == announced[1] == announced[2]
    assert others[0] == 0
    assert others[2] > 1.8 * others[1]


def test_a_naive_instant_and_an_invalid_pace_are_refused(world: World) -> None:
    with pytest.raises(ValueError, match=r"no timezone.*pass an aware datetime"):
        world.changes(NOW.replace(tzinfo=None), NOW)
    for pace in (-1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="pace is"):
            World(pace=pace)


def test_an_unknown_id_is_known_at_no_time(world: World) -> None:
    for event_id in ("", "0", "f" * 24, "not an id", "é" * 24, "0" * 400):
        assert world.event_at(event_id, NOW) is None
        assert world.status_at(event_id, NOW) is None
        assert world.cancelled_at(event_id, NOW) is None
        assert world.history(event_id, NOW) == ()


def test_nothing_is_known_before_the_start_of_the_catalog(world: World) -> None:
    before = datetime(2016, 9, 30, tzinfo=UTC)
    assert world.events_at(before) == {}
    assert world.cancellations_at(before) == []
    assert world.changes(datetime(1990, 1, 1, tzinfo=UTC), before) == []
    assert world.changes(NOW, NOW - DAY) == []


@settings(max_examples=20)
@given(start_s=st.integers(0, 22 * 30 * 86_400), length_s=st.integers(0, 20 * 86_400))
def test_changes_applied_to_a_state_give_the_later_state(
    world: World, start_s: int, length_s: int
) -> None:
    start = datetime(2017, 1, 1, tzinfo=UTC) + timedelta(seconds=start_s)
    end = start + timedelta(seconds=length_s)
    state = dict(world.events_at(start))
    for change in world.changes(start, end):
        event = world.event_at(change.event_id, change.at)
        if event is None:
            state.pop(change.event_id, None)
        else:
            state[change.event_id] = event
    assert state == world.events_at(end)


def test_the_kinds_of_a_change_are_those_of_its_differences_and_of_its_status(
    histories: list[tuple[Version, ...]],
) -> None:
    """Only a withdrawn event is restored, and a cancelled one never."""
    apart, seen = {"cancelled", "withdrawn", "restored"}, set()
    for history in histories:
        assert history[0].kinds == ("created",)
        for old, new in pairwise(history):
            seen |= {*new.kinds}
            assert set(new.kinds) - apart == names_of_changes(old.event, new.event)
            assert len(set(new.kinds)) == len(new.kinds)
            if new.status != "scheduled":
                assert new.kinds == (new.status,)
                assert new.event == old.event
            assert old.status != "cancelled"
            was_withdrawn = old.status == "withdrawn"
            assert ("restored" in new.kinds) == (was_withdrawn and new.status == "scheduled")
            assert not was_withdrawn or new.kinds[0] in ("restored", "cancelled")
    assert seen > apart


def test_the_catalog_is_as_large_as_the_real_one_and_has_the_hard_cases_of_csv() -> None:
    now = datetime(2026, 11, 1, tzinfo=UTC)
    events = World(1).events_at(now).values()
    assert 40_000 <= len(events) <= 50_000
    assert sum(event.date > now for event in events) >= 1_500
    by_year = Counter(event.date.year for event in events)
    assert all(by_year[year] < by_year[year + 1] for year in range(2017, 2025))
    for awkward in (";", ",", '"', "’"):
        assert sum(awkward in event.title for event in events) > 50, awkward
    for awkward in ("\n", ";", ",", '"', "→", "🚀", "中文"):
        assert sum(awkward in (event.description or "") for event in events) > 500, awkward


def test_every_python_and_every_release_gives_the_same_catalog() -> None:
    """If you change the catalog on purpose, put the new digest here, and in the changelog."""
    world, instant = World(1), datetime(2017, 3, 1, tzinfo=UTC)
    answers = (world.events_at(instant), world.coins_at(instant))
    digest = hashlib.sha256(repr(answers).encode()).hexdigest()
    assert digest[:16] == "66ca8bc39fa36950"
    happened = world.changes(instant, datetime(2018, 1, 1, tzinfo=UTC))
    end = datetime(2026, 11, 1, tzinfo=UTC)
    lives = [world.history(change.event_id, end) for change in happened]
    assert hashlib.sha256(repr(lives).encode()).hexdigest()[:16] == "3d261e27da4e30af"
