"""The joins agree with the sandbox's truth, at random instants and around every change."""

import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, NamedTuple

import pandas as pd
import pytest

import almanac
from tests.almanac.joins.watched_plans import PLANS, US, WatchedPlan, begun, watch_plans
from tests.warehouse.answers.plain.dating import DAY

HORIZONS = [timedelta(days=7), timedelta(hours=30), timedelta(days=45)]
HALF_HOUR = timedelta(minutes=30)


class Size(NamedTuple):
    days: int
    pairs: int


@pytest.fixture(
    scope="module", params=[Size(2, 400), pytest.param(Size(8, 10_000), marks=pytest.mark.long)]
)
def size(request: pytest.FixtureRequest) -> Size:
    found: Size = request.param
    return found


@pytest.fixture(scope="module")
def homes(size: Size, tmp_path_factory: pytest.TempPathFactory) -> dict[str, WatchedPlan]:
    return watch_plans(tmp_path_factory.mktemp("plans"), size.days)


class Pairs:
    """Instants and coins: random ones, and a microsecond around the changes of what is known."""

    def __init__(self, watched: WatchedPlan, count: int, horizon: timedelta, seed: str) -> None:
        before = min(watched.pulls) - timedelta(hours=6)
        self.now = max(watched.pulls) + DAY
        random, every = Random(seed), sorted(coins_of(watched))
        edges = [edge for edge in changes(watched, horizon) if before < edge[0] < self.now]
        span, busy = (self.now - before) // US, sorted({coin for _, coin in edges})
        self.pairs: list[tuple[datetime, str]] = []
        for number in range(count):
            if number % 4 > 1:
                at, coin = random.choice(edges)
                self.pairs.append((at + random.choice([-1, 0, 0, 1]) * US, coin))
            else:
                at = before + random.randrange(span) * US
                self.pairs.append((at, random.choice(busy if number % 4 else every)))

    def frame(self) -> pd.DataFrame:
        return pd.DataFrame(self.pairs, columns=["ts", "coin"])


def coins_of(watched: WatchedPlan) -> set[str]:
    """Return the coins that are linked to an event, also to none that is exact."""
    events = watched.oracle.events.values()
    return {coin for state in events for coin in state.content["coins"]}


def changes(watched: WatchedPlan, horizon: timedelta) -> Iterator[tuple[datetime, str]]:
    """Yield the instants at which the answer for a coin may change."""
    first, last = min(watched.pulls), max(watched.pulls) + DAY
    for coin, versions in watched.by_coin.items():
        near = [v for v in versions if first < begun(v) and v.content["date"] - horizon < last]
        for version in near:
            date = version.content["date"]
            absences = watched.oracle.events[version.event_id].absences
            edges = [version.known_from, version.known_to, date, begun(version), date - horizon]
            edges += [changed_at for changed_at, _ in absences]
            yield from ((edge, coin) for edge in edges if edge is not None)
        for pull in watched.pulls if near else ():
            yield from ((pull, coin), (pull + 2 * DAY, coin))


def open_at(watched: WatchedPlan, now: datetime) -> almanac.Database:
    return almanac.open(watched.home.warehouse, clock=lambda: now)


def wrong(
    watched: WatchedPlan,
    pairs: Sequence[tuple[datetime, str]],
    found: pd.DataFrame,
    horizon: timedelta,
) -> list[str]:
    """Return the pairs with another answer than the truth's."""
    assert len(pairs) == len(found)
    differing = []
    for (at, coin), row in zip(pairs, found.to_dict("records"), strict=True):
        expected = watched.next_event(coin, at, horizon)
        for name in list(found.columns)[2:]:
            if not same(row[name], expected.get(name)):
                differing.append(f"{at} {coin} {name}: {row[name]} for {expected.get(name)}")
    return differing


def same(found: Any, expected: Any) -> bool:
    if expected is None or pd.isna(found):
        return expected is None and bool(pd.isna(found))
    if isinstance(expected, float):
        return abs(found - expected) < 1e-9
    return bool(found == expected)


@pytest.mark.parametrize("plan", PLANS)
def test_attach_known_is_the_truth_at_random_instants_and_at_every_change(
    homes: dict[str, WatchedPlan], size: Size, plan: str
) -> None:
    watched = homes[plan]
    seen = set()
    for horizon in HORIZONS:
        pairs = Pairs(watched, -(-size.pairs // len(HORIZONS)), horizon, f"{plan}{horizon}")
        with open_at(watched, pairs.now) as db:
            found = db.attach_known(pairs.frame(), horizon=horizon)
        assert wrong(watched, pairs.pairs, found, horizon) == []
        seen |= {str(count) for count in found.events_ahead}
        assert 0.1 < found.next_event_id.notna().mean() < 0.9, horizon
        assert {True, False} == set(found.watched)
    assert {"<NA>", "0", "1", "2"} <= seen


def test_the_zone_of_the_machine_changes_nothing(
    homes: dict[str, WatchedPlan], size: Size, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Instants without a zone are UTC; the machine is elsewhere."""
    horizon = timedelta(days=9)
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        assert time.tzname[0] == "EST"
        for plan, watched in homes.items():
            pairs = Pairs(watched, size.pairs, horizon, f"{plan} elsewhere")
            naive = pairs.frame().assign(ts=lambda frame: frame.ts.dt.tz_localize(None))
            opens, coins = naive.ts[: size.pairs // 25], naive.coin.drop_duplicates().head(25)
            with open_at(watched, pairs.now) as db:
                found = db.attach_known(naive, horizon=horizon)
                bars = db.features(opens, "30m", coins, as_of="bar_open", horizon=horizon)
            assert wrong(watched, pairs.pairs, found, horizon) == []
            asked = [(at, coin) for at, _ in pairs.pairs[: len(opens)] for coin in coins]
            table = bars.reset_index().drop(columns="known_at")
            assert wrong(watched, asked, table, horizon) == []
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("plan", PLANS)
def test_features_are_the_truth_at_the_close_of_each_bar(
    homes: dict[str, WatchedPlan], size: Size, plan: str
) -> None:
    watched, horizon = homes[plan], timedelta(days=7)
    first, now = min(watched.pulls), max(watched.pulls) + DAY
    coins = Random(plan).sample(sorted(watched.by_coin), 24)
    bars = range(min(-(-size.pairs // len(coins)), (now - first) // HALF_HOUR + 4))
    opens = [first - 4 * HALF_HOUR + bar * HALF_HOUR for bar in bars]
    symbols = {f"{coin}/USDT": coin for coin in coins}
    with open_at(watched, now) as db:
        for as_of, later in (("bar_close", HALF_HOUR), ("bar_open", timedelta(0))):
            found = db.features(pd.DatetimeIndex(opens), "30m", symbols, as_of=as_of)
            asked = [(opened + later, coin) for opened in opens for coin in coins]
            assert list(found.pop("known_at")) == [at for at, _ in asked]
            table = found.reset_index()
            assert list(table.symbol[: len(coins)]) == list(symbols)
            assert wrong(watched, asked, table, horizon) == []


@pytest.mark.parametrize("plan", PLANS)
def test_each_instant_of_a_blackout_is_near_an_event_that_was_known_then(
    homes: dict[str, WatchedPlan], size: Size, plan: str
) -> None:
    watched = homes[plan]
    before, after = timedelta(hours=5), timedelta(hours=1)
    pairs = Pairs(watched, size.pairs, before, f"{plan} blackouts")
    with open_at(watched, pairs.now) as db:
        rows = db.blackouts(before, after, min_impact=None, as_of="each").rows()
    times: dict[str, list[tuple[datetime, datetime]]] = {}
    for row in rows:
        starts, ends = (row[name].astimezone(UTC) for name in ("starts", "ends"))
        assert starts < ends
        times.setdefault(row["coin"], []).append((starts, ends))
    wrongly = [
        (at, coin)
        for at, coin in pairs.pairs
        if any(starts <= at < ends for starts, ends in times.get(coin, []))
        != watched.is_blacked_out(coin, at, before, after)
    ]
    assert wrongly == []
    assert len(times) > 10
