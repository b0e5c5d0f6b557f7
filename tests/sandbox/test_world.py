"""The synthetic catalog, a pure function of seed, pace and time; and its history in SQL."""

import hashlib
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.contract.plans import Window
from catalog.sandbox.history import SandboxHistory
from catalog.server.catalog_store import ChangeQuery, CoinQuery, EventQuery, StoredEvent
from tests.sandbox.true_world import TrueEvent, Version, World

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


def test_an_unknown_id_and_a_time_before_the_catalog_are_empty(world: World) -> None:
    for event_id in ("", "0", "f" * 24, "not an id", "é" * 24, "0" * 400):
        known = world.event_at(event_id, NOW), world.status_at(event_id, NOW)
        assert (*known, world.cancelled_at(event_id, NOW)) == (None, None, None)
        assert world.history(event_id, NOW) == ()
    before = datetime(2016, 9, 30, tzinfo=UTC)
    assert (world.events_at(before), world.cancellations_at(before)) == ({}, [])
    assert world.changes(datetime(1990, 1, 1, tzinfo=UTC), before) == []
    assert world.changes(NOW, NOW - DAY) == []
    with pytest.raises(ValueError, match=r"no timezone.*pass an aware datetime"):
        world.changes(NOW.replace(tzinfo=None), NOW)
    for pace in (-1, float("nan")):
        with pytest.raises(ValueError, match="pace is"):
            World(pace=pace)


@given(start_s=st.integers(0, 22 * 30 * 86_400), length_s=st.integers(0, 20 * 86_400))
def test_changes_of_a_state_give_the_later_state(world: World, start_s: int, length_s: int) -> None:
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


def test_the_kinds_of_a_change_are_those_of_its_differences(
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


@pytest.mark.parametrize(
    ("year", "least", "most"),
    [(2018, 3_000, 4_000), pytest.param(2026, 40_000, 50_000, marks=pytest.mark.long)],
)
def test_the_catalog_grows_and_has_the_hard_cases_of_csv(year: int, least: int, most: int) -> None:
    events = World(1).events_at(datetime(year, 11, 1, tzinfo=UTC)).values()
    assert least <= len(events) <= most
    by_year = Counter(event.date.year for event in events)
    assert all(by_year[each] < by_year[each + 1] for each in range(2017, max(2018, year - 1)))
    for awkward in (";", ",", '"', "’"):
        assert any(awkward in event.title for event in events), awkward
    for awkward in ("\n", ";", ",", '"', "→", "🚀", "中文"):
        assert any(awkward in (event.description or "") for event in events), awkward


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


START, EARLIEST = datetime(2017, 1, 1, tzinfo=UTC), datetime(2016, 1, 1, tzinfo=UTC)
NAMES = {category.id: category.name for category in World.categories}
PLAIN = [name for name in TrueEvent.__slots__ if name not in ("categories", "coins")]
EVERY = 10**6


@pytest.fixture(scope="module")
def history() -> SandboxHistory:
    return SandboxHistory(1, 1.0)


def same(stored: StoredEvent | None, true: TrueEvent) -> bool:
    return stored is not None and (
        all(getattr(stored, name) == getattr(true, name) for name in PLAIN)
        and stored.categories == tuple(NAMES[name] for name in true.categories)
        and tuple(coin.slug for coin in stored.coins) == true.coins
    )


@pytest.mark.parametrize("seed", range(3))
def test_lists_are_those_of_the_world(history: SandboxHistory, world: World, seed: int) -> None:
    """What a query selects is in the tests of the store."""
    r = Random(seed)
    at = START + timedelta(days=r.randrange(730), seconds=r.choice([0, r.randrange(86_400)]))
    store, events = history.at(at), world.events_at(at)
    expected = sorted(events.values(), key=lambda event: (event.date, event.id))
    rows = [*store.iter_events(EventQuery(at, Window(EARLIEST, None)))]
    assert [row.id for row in rows] == [event.id for event in expected]
    assert all(map(same, rows, expected))
    query = EventQuery(at, Window(at, None), coverage_top=100, order="impact_desc")
    top = {coin.slug for coin in world.coins_at(at) if coin.rank is not None and coin.rank <= 100}
    shown = [
        (1.0 if each.impact is None else -each.impact, each.date, each.id)
        for each in expected
        if (each.date_end or each.date) >= at and top & {*each.coins}
    ]
    assert [row.id for row in store.iter_events(query)] == [name for *_, name in sorted(shown)]
    for event_id in [
        *r.sample(sorted(events), 5),
        *(i for _, i in world.cancellations_at(at)[-5:]),
    ]:
        versions, true = store.history(event_id, at), world.history(event_id, at)
        known = [(v.known_from, v.known_to, v.status, v.kinds) for v in versions]
        assert known == [(v.known_from, v.known_to, v.status, v.kinds) for v in true]
        assert all(same(v.event, t.event) for v, t in zip(versions, true, strict=True))
        assert store.event(event_id, at) == versions[-1]
    found = store.cancellations(at, EARLIEST, after=None, limit=5_000)
    assert [(row.cancelled_at, row.id) for row in found.rows] == world.cancellations_at(at)
    listed = store.coins(CoinQuery(at, Window(at, None)), after=None, limit=EVERY).rows
    assert [(c.slug, c.symbol, c.name, c.rank, c.tracked, c.icon_url) for c in listed] == [
        (c.slug, c.symbol, c.name, c.rank, c.tracked, c.icon_url) for c in world.coins_at(at)
    ]


def test_coins_leave_and_return_and_their_ranks_have_no_gap(
    history: SandboxHistory, world: World
) -> None:
    begins = datetime(2018, 11, 1, tzinfo=UTC)
    lists = [
        {coin.slug: coin.rank for coin in world.coins_at(begins + timedelta(days=day))}
        for day in range(0, 61, 5)
    ]
    for ranks in lists:
        ranked = [rank for rank in ranks.values() if rank is not None]
        assert ranked == list(range(1, len(ranked) + 1))
    first, last = lists[0].keys(), lists[-1].keys()
    assert first - last
    assert last - first
    assert any((first & last) - ranks.keys() for ranks in lists), "a coin left and returned"
    assert any(lists[0][slug] != lists[-1][slug] for slug in first & last)
    at = begins + timedelta(days=60)
    store, query = history.at(at), CoinQuery(at, Window(at, None))
    for slug in first - last:
        assert store.coin(slug, at, query.upcoming) is None
        assert store.ranks([slug], at) == {}


def test_the_feed_is_the_changes_of_the_world_whatever_was_written_first(world: World) -> None:
    until = datetime(2018, 6, 15, tzinfo=UTC)
    expected = [(c.at, c.event_id, c.kinds) for c in world.changes(START, until)]
    whole, stepped = SandboxHistory(1, 1.0), SandboxHistory(1, 1.0)
    for month in range(1, 20, 3):
        stepped.at(START + month * timedelta(days=30))
    query = ChangeQuery(until=until, since=START, head=EVERY)
    pages = [each.at(until).changes(query, limit=EVERY).rows for each in (whole, stepped)]
    assert pages[0] == pages[1]
    assert [(v.known_from, v.event_id, v.kinds) for v in pages[0]] == expected
    seqs = [version.seq for version in pages[0]]
    assert seqs == [*range(seqs[0], whole.at(until).head(until) + 1)]


def test_kept_years_are_the_same_and_damaged_ones_are_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path))
    until = datetime(2018, 2, 1, tzinfo=UTC)
    query = ChangeQuery(until=until, since=START, head=EVERY)

    def changes() -> list[Any]:
        return list(SandboxHistory(9, 1.0).at(until).changes(query, limit=EVERY).rows)

    made = changes()
    (kept,) = tmp_path.rglob("*-9-1-12.parquet")
    written_at, whole = kept.stat().st_mtime_ns, kept.read_bytes()
    assert changes() == made
    assert kept.stat().st_mtime_ns == written_at, "it was read"
    kept.write_bytes(whole[:5000])
    (kept.parent / "of-other-code.parquet").touch()
    assert changes() == made
    assert len(kept.read_bytes()) == len(whole)
    assert [*kept.parent.glob("*.parquet")] == [kept]


def test_threads_that_request_another_time_get_the_same_history() -> None:
    history, until = SandboxHistory(9, 1.0), datetime(2018, 1, 1, tzinfo=UTC)

    def head(days: int) -> int:
        return history.at(until - timedelta(days=days)).head(until - timedelta(days=days))

    with ThreadPoolExecutor(4) as pool:
        heads = [*pool.map(head, [0, 40, 80, 120] * 3)]
    assert heads == [*map(head, [0, 40, 80, 120] * 3)]
