"""The store in SQL agrees with lists and loops, for any small history, query and time."""

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from catalog.contract.plans import Window
from catalog.server.catalog_store import (
    ChangeQuery,
    CoinQuery,
    EventQuery,
    StoredEvent,
    StorePage,
    date_key,
    impact_key,
)
from catalog.server.sql_store import SqlStore
from tests.server.small_catalog import (
    CATEGORIES,
    COINS,
    DAY,
    FIRST,
    SECOND,
    TODAY,
    TimedStore,
    View,
    event,
    view,
)

IDS = st.sampled_from(["a", "b", "ä", "c"])
SLUGS = [slug for slug, *_ in COINS]
RANKS = {slug: rank for slug, rank, _ in COINS}
DATES = st.builds(
    lambda days, s: TODAY + days * DAY + s * SECOND, st.integers(-3, 6), st.integers(-1, 1)
)
LETTERS = "aBßſİ é中'%_\\"
WORDS = st.text(LETTERS, max_size=4)
LENGTHS = st.sampled_from([None, None, 0, 1, 30])
EVENTS = st.builds(
    lambda event_id, date, days, **fields: event(
        event_id, date, date_end=None if days is None else date + days * DAY, **fields
    ),
    *(IDS, DATES, LENGTHS),
    coins=st.lists(st.sampled_from(SLUGS), max_size=3, unique=True),
    categories=st.lists(st.sampled_from(list(CATEGORIES)), max_size=2, unique=True),
    impact=st.sampled_from([None, 0.0, 2.5, 7.4, 7.5, 10.0]),
    title=WORDS,
    description=st.none() | WORDS,
)
QUERIES = st.fixed_dictionaries(
    {
        "window": st.builds(Window, DATES, st.none() | DATES),
        "coins": st.none() | st.frozensets(st.sampled_from([*SLUGS, "unknown"]), max_size=3),
        "categories": st.none()
        | st.frozensets(st.sampled_from([*CATEGORIES, "unknown"]), max_size=2),
        "keyword": st.none() | st.text(LETTERS, min_size=1, max_size=2).map(str.casefold),
        "keyword_in_description": st.booleans(),
        "impact_min": st.sampled_from([None, None, 0.0, 7.5]),
        "coverage_top": st.sampled_from([None, None, 1, 100]),
        "order": st.sampled_from(["date_asc", "impact_desc"]),
    }
)


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[datetime, View]]:
    """Return views, each with the time from which it is valid; a time may have several."""
    found, at, last = [], FIRST, View()
    for hours in draw(st.lists(st.integers(0, 3), min_size=2, max_size=5)):
        at += timedelta(hours=hours)
        events = dict(last.events)
        for added in draw(st.lists(EVENTS, min_size=1, max_size=3)):
            events[added.id] = added
        gone = {event_id: at for event_id in draw(st.sets(IDS, max_size=1))}
        is_cancelled = draw(st.booleans())
        cancelled = last.cancelled | (gone if is_cancelled else {})
        shown = [row for row in events.values() if row.id not in gone and row.id not in cancelled]
        last = view(shown, cancelled=cancelled)
        found.append((at, last))
    return found


MOMENTS = st.tuples(st.integers(0, 5), st.sampled_from([-SECOND, 0 * DAY, 0 * DAY, DAY]))
"""The place of a time at which something changed, and how much later."""


def valid_at(history: list[tuple[datetime, View]], ts: datetime) -> View:
    return next((found for at, found in reversed(history) if at <= ts), View())


def is_major(event: StoredEvent) -> bool:
    return event.impact is not None and event.impact >= 7.5


def matches(event: StoredEvent, query: EventQuery) -> bool:
    slugs = {coin.slug for coin in event.coins}
    names = {CATEGORIES.get(name, name) for name in query.categories or ()}
    ranks = [RANKS[slug] for slug in slugs]
    texts = [event.title, (event.description or "") if query.keyword_in_description else ""]
    end, window, score = event.date_end or event.date, query.window, event.impact
    return (
        (window.upper is None or window.lower <= window.upper)
        and end >= window.lower
        and (window.upper is None or event.date <= window.upper)
        and (query.coins is None or bool(query.coins & slugs))
        and (query.categories is None or bool(names & set(event.categories or ())))
        and (query.impact_min is None or (score is not None and score >= query.impact_min))
        and (
            query.coverage_top is None
            or any(rank is not None and rank <= query.coverage_top for rank in ranks)
        )
        and (query.keyword is None or any(query.keyword in text.casefold() for text in texts))
    )


def follow(page: Any, key_of: Any) -> list[Any]:
    """Return the rows of all pages."""
    found = page(after=None)
    rows = [*found.rows]
    while found.more:
        found = page(after=key_of(rows[-1]))
        rows += found.rows
        assert len(rows) <= found.total, "the pages never end"
    assert found.total == len(rows)
    return rows


TWO = [(FIRST, view([event("a")])), (FIRST + DAY, view([event("a", title="later")]))]


@example(TWO, (1, 0 * DAY), [], 1)
@example(TWO, (0, 0 * DAY), [], 1)
@given(histories(), MOMENTS, st.lists(QUERIES, max_size=4), st.integers(1, 3))
def test_it_agrees_with_lists_and_loops(
    history: list[tuple[datetime, View]],
    moment: tuple[int, timedelta],
    queries: list[dict[str, Any]],
    limit: int,
) -> None:
    place, later = moment
    ts = history[place % len(history)][0] + later
    store, shown = TimedStore(View(), *history).sql, valid_at(history, ts)
    for fields in [{"window": Window(FIRST, None)}, *queries]:
        query = EventQuery(ts=ts, **fields)
        key = impact_key if query.order == "impact_desc" else date_key
        expected = sorted((row for row in shown.events.values() if matches(row, query)), key=key)
        assert list(store.iter_events(query)) == expected
        assert follow(partial(store.events, query, limit=limit), key) == expected
    for event_id in ("a", "b", "ä", "c", "unknown"):
        single, versions = store.event(event_id, ts), store.history(event_id, ts)
        assert single == (versions[-1] if versions else None)
        listed = single.event if single and single.status == "scheduled" else None
        assert listed == shown.events.get(event_id)
        assert (single.cancelled_at if single else None) == shown.cancelled.get(event_id)
        majors = [v.version for v in versions if v.event and is_major(v.event)]
        assert [v.version for v in versions if v.is_first_major] == majors[:1]
    since = FIRST + timedelta(hours=2)
    cancelled = sorted((at, event_id) for event_id, at in shown.cancelled.items() if at >= since)
    rows = follow(
        partial(store.cancellations, ts, since, limit=limit),
        lambda row: (row.cancelled_at.timestamp(), row.id),
    )
    assert [(row.cancelled_at, row.id) for row in rows] == cancelled
    upcoming = Window(TODAY, TODAY + 2 * DAY)
    for coin in store.coins(CoinQuery(ts, upcoming), after=None, limit=9).rows:
        of_coin = EventQuery(ts=ts, window=upcoming, coins=frozenset({coin.slug}))
        events = [row for row in shown.events.values() if matches(row, of_coin)]
        peak = max((row.impact for row in events if row.impact is not None), default=None)
        counters = (coin.upcoming_count, coin.major_count, coin.peak_impact)
        assert counters == (len(events), sum(map(is_major, events)), peak)
        assert store.coin(coin.slug, ts, upcoming) == coin
    every = store.changes(ChangeQuery(until=ts), limit=1_000).rows
    assert [row.seq for row in every] == list(range(1, store.head(ts) + 1))
    page = store.changes(ChangeQuery(until=ts, since=since, head=store.head(ts)), limit=limit)
    following = [row for row in every if row.known_from > since]
    assert (page.total, list(page.rows)) == (len(following), following[:limit])


@pytest.fixture(scope="module")
def store() -> SqlStore:
    late = event("a", title="Übergang")
    return TimedStore(view([event("a"), event("b")]), (TODAY, view([late]))).sql


KEYS = st.floats() | st.integers(-(2**63), 2**64 - 1)
EDGES = st.sampled_from([datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC), TODAY])


@given(KEYS, KEYS, st.text(max_size=2), st.tuples(EDGES, EDGES, EDGES))
def test_no_forged_cursor_and_no_end_of_the_calendar_raises(
    store: SqlStore, first: float, second: float, name: str, edges: tuple[datetime, ...]
) -> None:
    ts, low, up = edges
    window = Window(low, up)
    store.events(EventQuery(ts, window), after=(first, name), limit=1)
    by_impact = EventQuery(ts, window, order="impact_desc", keyword=name)
    store.events(by_impact, after=(first, second, name), limit=1)
    store.coins(CoinQuery(ts, window), after=((2**64 - 1), name), limit=1)
    store.cancellations(ts, low, after=(first, name), limit=1)
    seq = int(first) if abs(first) < 2**64 else 0
    store.changes(ChangeQuery(until=ts, after=seq, since=low, head=seq), limit=1)
    assert store.event(f"none {name}", ts) is None
    found = store.event(name, ts)
    assert found is None or (found.event_id, found.known_from <= ts) == (name, True)


def test_an_event_whose_date_python_cannot_hold_is_left_out() -> None:
    timed = TimedStore(view([event("a"), event("b")]))
    update = "UPDATE published.event_versions SET"
    timed.connection.execute(f"{update} updated_at = 'infinity'")
    query = EventQuery(TODAY, Window(datetime.min.replace(tzinfo=UTC), None))
    known = replace(event("a"), updated_at=None)
    for date in ("infinity", "20000-01-01 00:00:00+00", "-infinity"):
        timed.connection.execute(f"{update} date = ? WHERE event_id = 'b'", [date])
        assert timed.sql.events(query, after=None, limit=9) == StorePage(
            [known], more=False, total=1
        )
        found = timed.sql.event("b", TODAY)
        assert found is not None
        assert found.event is None


def test_the_cancellation_of_an_event_that_is_not_known() -> None:
    timed = TimedStore(view([event("a")]))
    for event_id in ("a", "b"):
        values = [event_id, FIRST - DAY, FIRST + DAY]
        timed.connection.execute("INSERT INTO published.cancellations VALUES (?, ?, ?)", values)
    for ts, ids in ((FIRST, []), (FIRST + DAY, ["b"])):
        found = timed.sql.cancellations(ts, FIRST, after=None, limit=9)
        assert ([row.id for row in found.rows], found.total) == (ids, len(ids))
        single = timed.sql.event("b", ts)
        assert ([single.event_id] if single else []) == ids
        assert single is None or (single.status, single.cancelled_at) == ("cancelled", FIRST - DAY)
