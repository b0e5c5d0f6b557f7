"""The history in SQL is the world: at any time, for any query, and in the feed of changes."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from random import Random

import httpx
import pytest

from catalog.contract.plans import Window
from catalog.sandbox.history import SandboxHistory
from catalog.sandbox.sandbox import Sandbox
from catalog.sandbox.world.truth import TrueEvent
from catalog.sandbox.world.world import World
from catalog.server.catalog_store import ChangeQuery, CoinQuery, EventQuery, StoredEvent
from tests.hangs import HANGS_AFTER_S

START, EARLIEST = datetime(2017, 1, 1, tzinfo=UTC), datetime(2016, 1, 1, tzinfo=UTC)
NAMES = {category.id: category.name for category in World.categories}
PLAIN = [name for name in TrueEvent.__slots__ if name not in ("categories", "coins")]
EVERY = 10**6


@pytest.fixture(scope="module")
def world() -> World:
    return World(1)


@pytest.fixture(scope="module")
def history() -> SandboxHistory:
    return SandboxHistory(1, 1.0)


def same(stored: StoredEvent | None, true: TrueEvent) -> bool:
    return stored is not None and (
        all(getattr(stored, name) == getattr(true, name) for name in PLAIN)
        and stored.categories == tuple(NAMES[name] for name in true.categories)
        and tuple(coin.slug for coin in stored.coins) == true.coins
    )


@pytest.mark.parametrize("seed", range(8))
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


def test_the_feed_is_the_changes_of_the_world_whatever_was_written_first(world: World) -> None:
    until = datetime(2018, 6, 15, tzinfo=UTC)
    expected = [(c.at, c.event_id, c.kinds) for c in world.changes(START, until)]
    whole, stepped = SandboxHistory(1, 1.0), SandboxHistory(1, 1.0)
    for month in range(1, 20):
        stepped.at(START + month * timedelta(days=30))
    query = ChangeQuery(until=until, since=START, head=EVERY)
    pages = [each.at(until).changes(query, limit=EVERY).rows for each in (whole, stepped)]
    assert pages[0] == pages[1]
    assert [(v.known_from, v.event_id, v.kinds) for v in pages[0]] == expected
    seqs = [version.seq for version in pages[0]]
    assert seqs == [*range(seqs[0], whole.at(until).head(until) + 1)]


def test_threads_that_request_another_time_get_the_same_history() -> None:
    history, until = SandboxHistory(9, 1.0), datetime(2018, 1, 1, tzinfo=UTC)

    def head(days: int) -> int:
        return history.at(until - timedelta(days=days)).head(until - timedelta(days=days))

    with ThreadPoolExecutor(4) as pool:
        heads = [*pool.map(head, [0, 40, 80, 120] * 3)]
    assert heads == [*map(head, [0, 40, 80, 120] * 3)]


def test_a_running_server_lists_the_world_of_a_minute_ago() -> None:
    now = datetime(2018, 5, 5, 1, 2, 3, tzinfo=UTC)
    with Sandbox(now=now) as sandbox:
        world, key = sandbox.truth(), {"x-api-key": sandbox.keys["elite"]}
        get = partial(httpx.get, headers=key, timeout=HANGS_AFTER_S)
        page = get(sandbox.base_url + "/v2/events?limit=100").json()
        cancelled = world.cancellations_at(now - timedelta(hours=1))[-1][1]
        assert get(f"{sandbox.base_url}/v2/events/{cancelled}").status_code == 410
    today = now.replace(hour=0, minute=0, second=0)
    events = world.events_at(now - timedelta(seconds=60)).values()
    shown = [event for event in events if (event.date_end or event.date) >= today]
    ids = [event.id for event in sorted(shown, key=lambda event: (event.date, event.id))]
    assert [row["id"] for row in page["data"]] == ids[:100]
    assert page["meta"]["total"] == len(ids)
