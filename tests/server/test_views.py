"""Views made by editing other views, and the rows that are cached for them."""

import gc
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from operator import attrgetter

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.contract.plans import Window
from catalog.sandbox.sandbox import Sandbox
from catalog.sandbox.world.truth import Change
from catalog.sandbox.world.world import World
from catalog.sandbox.world_store import SandboxStore
from catalog.server.memory_view import CoinBook, MemoryView, TextIndex
from catalog.server.store import EventQuery, StoredEvent
from tests.hangs import HANGS_AFTER_S
from tests.server.small_catalog import (
    COINS,
    DAY,
    NOW,
    TODAY,
    TimedStore,
    coin,
    event,
    serving,
    view,
)
from tests.server.test_hosting import exchange

ALL_DATES = Window(datetime(2017, 1, 1, tzinfo=UTC), None)
BOOK = CoinBook(COINS)


def ids(found: MemoryView, query: EventQuery) -> list[str]:
    return [row.id for row in found.events(query, after=None, limit=100).events]


def test_a_keyword_finds_the_words_of_an_edited_view_and_no_longer_the_old_ones() -> None:
    old = event("a", title="Mainnet launch", description="soon")
    before = view([old])
    after = before.edited({"a": replace(old, title="Testnet launch")}, coins=BOOK, cancelled={})
    assert ids(after, EventQuery(ALL_DATES, keyword="mainnet")) == []
    assert ids(after, EventQuery(ALL_DATES, keyword="testnet")) == ["a"]
    assert ids(before, EventQuery(ALL_DATES, keyword="mainnet")) == ["a"]


def test_an_event_that_becomes_long_by_a_change_is_in_windows_that_begin_inside_it() -> None:
    short = event("a", NOW)
    long = replace(short, date_end=NOW + 60 * DAY)
    edited = view([short]).edited({"a": long}, coins=BOOK, cancelled={})
    inside = Window(NOW + 30 * DAY, NOW + 31 * DAY)
    for query in (EventQuery(inside), EventQuery(inside, coins=frozenset(long.coins))):
        assert ids(edited, query) == ids(view([long]), query) == ["a"]


def test_a_changed_score_moves_the_event_in_the_order_by_impact() -> None:
    pair = [event("a", impact=1.0), event("b", impact=2.0)]
    edited = view(pair).edited({"a": replace(pair[0], impact=3.0)}, coins=BOOK, cancelled={})
    by_impact = EventQuery(ALL_DATES, order="impact_desc")
    assert (ids(view(pair), by_impact), ids(edited, by_impact)) == (["b", "a"], ["a", "b"])


def test_an_edited_view_leaves_the_previous_one_unchanged() -> None:
    before = view([event("a"), event("b", coins=("next",))])
    before.edited({"a": None, "c": event("c")}, coins=BOOK, cancelled={"a": NOW})
    assert ids(before, EventQuery(ALL_DATES)) == ["a", "b"]
    assert ids(before, EventQuery(ALL_DATES, coins=frozenset({"first"}))) == ["a"]
    assert before.cancelled_at("a") is None


def test_rows_follow_the_names_of_coins_and_the_plan() -> None:
    renamed = view([event("a")], coins=[coin("first", 1, name="Renamed"), *COINS[1:]])
    store = TimedStore(view([event("a")])).then(NOW, renamed)
    with serving(store) as service:
        for plan, impact in (("elite", 6.5), ("pro", "High"), ("elite", 6.5), ("free", None)):
            assert service.get("/v2/events/a", plan).json()["impact"] == impact
        assert service.get("/v2/events/a").json()["coins"][0]["name"] == "First"
        service.clock.now = NOW + timedelta(minutes=2)
        assert service.get("/v2/events/a").json()["coins"][0]["name"] == "Renamed"
        assert service.get("/v2/coins/first").json()["name"] == "Renamed"


@pytest.mark.usefixtures("kept_in")
def test_a_query_may_be_written_in_raw_utf_8() -> None:
    with serving(view([event("a", title="中文 Übergang")])) as service:
        for query in ("keyword=%E4%B8%AD", "keyword=中", "keyword=übergang"):
            head = f"GET /v2/events?{query} HTTP/1.1\r\nHost: localhost\r\nx-api-key: elite\r\n\r\n"
            answer = exchange(service.client.base_url.port or 0, head.encode())
            assert b'"total":1' in answer, query


def test_the_export_of_another_catalog_has_another_tag() -> None:
    tags = set()
    for identity in ("one", "another"):
        store = TimedStore(view([event("a")]))
        store.identity = identity
        with serving(store) as service:
            tags.add(service.get("/v2/events/export").headers["etag"])
    assert len(tags) == 2


def count_views() -> int:
    gc.collect()
    # The type, since isinstance() also follows a weak proxy, whose view may be gone.
    return sum(type(found) is MemoryView for found in gc.get_objects())


def test_a_running_clock_does_not_accumulate_views() -> None:
    before = count_views()
    with Sandbox(now=datetime(2018, 3, 1, tzinfo=UTC)) as sandbox:
        headers = {"x-api-key": sandbox.keys["enterprise"]}
        with httpx.Client(
            base_url=sandbox.base_url, headers=headers, timeout=HANGS_AFTER_S
        ) as client:
            for _ in range(60):
                sandbox.advance(timedelta(hours=6))
                assert client.get("/v2/events?limit=1").status_code == 200
        alive = count_views() - before
    assert alive <= 40


WHOLE = {"created", "restored", "cancelled"}
MATERIAL = attrgetter(
    *("date", "date_end", "date_type", "is_estimated"), *("impact", "description", "source_url")
)


def is_material(world: World, change: Change) -> bool:
    before, after = world.history(change.event_id, change.at)[-2:]
    return MATERIAL(before.event) != MATERIAL(after.event)


def test_every_material_change_is_reported_once() -> None:
    after, until = datetime(2026, 2, 1, tzinfo=UTC), datetime(2026, 3, 1, tzinfo=UTC)
    world = World(1)
    found = [
        (change.at, change.event.id)
        for change in SandboxStore(world).changes(after, until)
        if change.kind != "events.high-impact"  # a second report of the same change
    ]
    happened = world.changes(after, until)
    whole = [c for c in happened if WHOLE & set(c.kinds)]
    edited = [c for c in happened if not (WHOLE | {"withdrawn"}) & set(c.kinds)]
    reported = [c for c in edited if is_material(world, c)]
    unreported = {kind for c in edited if c not in reported for kind in c.kinds}
    assert unreported == {"revised", "verified"}
    assert len(edited) - len(reported) > 50 < len(reported)
    assert sorted(found) == sorted((c.at, c.event_id) for c in whole + reported)


TEXTS = st.lists(st.text("ab ß\n", max_size=6), max_size=8)


@given(TEXTS, st.text("ab ß", min_size=1, max_size=4))
def test_a_search_by_pairs_of_letters_finds_what_a_scan_finds(texts: list[str], q: str) -> None:
    scanned = [place for place, text in enumerate(texts) if q in text]
    assert list(TextIndex(texts).search(q)) == scanned


SOME = ("first", "hundredth", "next")
EVENTS = st.lists(
    st.builds(
        lambda day, length, coins: (TODAY + day * DAY, length, coins),
        st.integers(0, 99),
        st.sampled_from([None, 0, 3, 4, 15, 16, 63, 64, 90]),
        st.lists(st.sampled_from(SOME), min_size=1, unique=True).map(tuple),
    ),
    max_size=12,
)


@given(EVENTS, EVENTS, st.sets(st.sampled_from((*SOME, "unknown"))), st.integers(0, 99))
def test_a_union_of_coins_counts_and_lists_each_event_once(
    first: list[tuple[datetime, int | None, tuple[str, ...]]],
    later: list[tuple[datetime, int | None, tuple[str, ...]]],
    coins: set[str],
    day: int,
) -> None:
    def make(rows: list[tuple[datetime, int | None, tuple[str, ...]]]) -> dict[str, StoredEvent]:
        return {
            f"e{place}": event(
                f"e{place}",
                date,
                date_end=None if length is None else date + length * DAY,
                coins=names,
            )
            for place, (date, length, names) in enumerate(rows)
        }

    changed: dict[str, StoredEvent | None] = {**dict.fromkeys(make(first)), **make(later)}
    found = view([*make(first).values()]).edited(changed, coins=BOOK, cancelled={})
    window = Window(TODAY + day * DAY, TODAY + (day + 5) * DAY)
    expected = sorted(
        (row.date, row.id)
        for row in make(later).values()
        if coins & set(row.coins) and window.overlaps(row.date, row.date_end)
    )
    ids_expected = [event_id for _, event_id in expected]
    query = EventQuery(window, coins=frozenset(coins))
    listed = found.events(query, after=None, limit=100)
    assert ([row.id for row in listed.events], listed.total) == (ids_expected, len(expected))
    assert [row.id for row in found.iter_events(query)] == ids_expected
    for place, (date, event_id) in enumerate(expected):
        following = found.events(query, after=(date.timestamp(), event_id), limit=1)
        assert [row.id for row in following.events] == ids_expected[place + 1 : place + 2]
        assert following.more == (place + 2 < len(expected))
