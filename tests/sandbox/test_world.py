"""The synthetic catalog: a pure function of seed, pace and time."""

import hashlib
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from catalog.sandbox.sandbox import Sandbox
from catalog.sandbox.world.world import Change, TrueEvent, Version, World

NOW = datetime(2026, 11, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
KINDS = (
    *("created", "cancelled", "withdrawn", "restored", "rescheduled"),
    *("made_exact", "made_estimated", "rescored", "revised", "verified"),
)
TEXTS = (
    *("title", "description", "categories", "coins"),
    *("impact_summary", "source_url", "snapshot_url"),
)
MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()  # noqa: SIM905

instants = st.datetimes(
    min_value=datetime(2024, 1, 1),  # noqa: DTZ001
    max_value=datetime(2026, 12, 1),  # noqa: DTZ001
    timezones=st.just(UTC),
)


@pytest.fixture(scope="module")
def world(almanac_sandbox: Sandbox) -> World:
    """The world of the sandbox, which other tests of this process generated already."""
    return almanac_sandbox.truth()


@pytest.fixture(scope="module")
def lively() -> World:
    return World(pace=2)


@pytest.fixture(scope="module")
def changes(world: World) -> list[Change]:
    """Everything that happened in the 16 months to NOW."""
    return world.changes(datetime(2025, 7, 1, tzinfo=UTC), NOW)


@pytest.fixture(scope="module")
def histories(world: World, changes: list[Change]) -> list[tuple[Version, ...]]:
    """The versions of the events announced in these months, as known at NOW."""
    return [
        world.history(change.event_id, NOW) for change in changes if change.kinds[0] == "created"
    ]


def steps(histories: list[tuple[Version, ...]]) -> Iterator[tuple[Version, Version]]:
    for history in histories:
        yield from pairwise(history)


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


# A pure function


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


def test_a_narrow_query_does_not_narrow_a_later_one() -> None:
    used, fresh = World(5), World(5)
    noon = datetime(2021, 6, 15, 12, tzinfo=UTC)
    used.changes(noon, noon + HOUR)
    assert used.changes(noon - 3 * DAY, noon + DAY) == fresh.changes(noon - 3 * DAY, noon + DAY)


def test_other_processes_and_hash_seeds_give_the_same_catalog() -> None:
    script = (
        "import hashlib\n"
        "from datetime import UTC, datetime\n"
        "from catalog.sandbox.world.world import World\n"
        "world, instant = World(11), datetime(2018, 2, 1, tzinfo=UTC)\n"
        "answers = (world.events_at(instant), world.coins_at(instant),\n"
        "           world.changes(datetime(2017, 1, 1, tzinfo=UTC), instant))\n"
        "print(hashlib.sha256(repr(answers).encode()).hexdigest())\n"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("0", "4242")
    }
    assert len(digests) == 1


def test_another_seed_gives_another_catalog() -> None:
    instant = datetime(2017, 6, 1, tzinfo=UTC)
    assert World(1).events_at(instant).keys().isdisjoint(World(2).events_at(instant))
    assert World(1).coins_at(instant) != World(2).coins_at(instant)


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


def test_threads_that_query_at_once_get_the_same_result() -> None:
    world = World(9)
    instant = datetime(2018, 1, 1, tzinfo=UTC)
    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(world.changes, instant - 30 * DAY, instant) for _ in range(4)]
    answers = [future.result() for future in futures]
    assert all(answer == answers[0] for answer in answers)
    assert answers[0] == World(9).changes(instant - 30 * DAY, instant)


@pytest.mark.parametrize("pace", [-1, float("nan"), float("inf")])
def test_an_invalid_pace_is_refused(pace: float) -> None:
    with pytest.raises(ValueError, match="pace is"):
        World(pace=pace)


def test_a_naive_instant_is_refused_with_an_example(world: World) -> None:
    naive = NOW.replace(tzinfo=None)
    questions = [
        lambda: world.changes(naive, NOW),
        lambda: world.changes(NOW, naive),
        lambda: world.event_at("0" * 24, naive),
        lambda: world.status_at("0" * 24, naive),
        lambda: world.cancelled_at("0" * 24, naive),
        lambda: world.history("0" * 24, naive),
        lambda: world.events_at(naive),
        lambda: world.cancellations_at(naive),
        lambda: world.coins_at(naive),
    ]
    for question in questions:
        with pytest.raises(ValueError, match=r"no timezone.*pass an aware datetime"):
            question()


def test_an_instant_in_another_zone_is_the_same_instant(world: World) -> None:
    there = NOW.astimezone(timezone(timedelta(hours=9)))
    assert world.changes(there - DAY, there) == world.changes(NOW - DAY, NOW)


@pytest.mark.parametrize("event_id", ["", "0", "f" * 24, "not an id", "é" * 24, "0" * 400])
def test_an_unknown_id_is_known_at_no_time(world: World, event_id: str) -> None:
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


def test_the_catalog_continues_until_2040() -> None:
    instant = datetime(2040, 5, 1, tzinfo=UTC)
    world = World()
    week = world.changes(instant - 7 * DAY, instant)
    assert {kind for change in week for kind in change.kinds} == set(KINDS)
    slugs = {coin.slug for coin in world.coins_at(instant)}
    linked = [world.history(change.event_id, change.at)[-1].event.coins for change in week]
    assert all(slugs.issuperset(coins) for coins in linked)


# Changes, versions and states agree


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(start=instants, length_s=st.integers(0, 20 * 86_400))
def test_changes_applied_to_a_state_give_the_later_state(
    world: World, start: datetime, length_s: int
) -> None:
    end = start + timedelta(seconds=length_s)
    state = dict(world.events_at(start))
    for change in world.changes(start, end):
        event = world.event_at(change.event_id, change.at)
        if event is None:
            state.pop(change.event_id, None)
        else:
            state[change.event_id] = event
    assert state == world.events_at(end)


@settings(max_examples=40, deadline=None)
@given(start=instants, first=st.integers(0, 10**6), second=st.integers(0, 10**6))
def test_changes_of_two_adjacent_periods_are_those_of_both(
    world: World, start: datetime, first: int, second: int
) -> None:
    middle = start + timedelta(seconds=first)
    end = middle + timedelta(seconds=second)
    whole = world.changes(start, end)
    assert whole == world.changes(start, middle) + world.changes(middle, end)
    assert whole == sorted(whole, key=lambda change: (change.at, change.event_id))
    assert all(start < change.at <= end for change in whole)


def test_changes_include_the_end_and_not_the_start(world: World, changes: list[Change]) -> None:
    at = changes[1000].at
    assert changes[1000] in world.changes(at - SECOND, at)
    assert changes[1000] not in world.changes(at, at + SECOND)


def test_history_agrees_with_the_state_at_its_edges(
    world: World, histories: list[tuple[Version, ...]]
) -> None:
    for history in histories[::7]:
        event_id = history[0].event.id
        assert world.status_at(event_id, history[0].known_from - SECOND) is None
        for version in history:
            lasts = (version.known_to or NOW) - SECOND
            for instant in (version.known_from, max(lasts, version.known_from)):
                seen = world.event_at(event_id, instant)
                assert seen == (version.event if version.status == "scheduled" else None)
                assert world.status_at(event_id, instant) == version.status


def test_versions_follow_without_gap_or_overlap(histories: list[tuple[Version, ...]]) -> None:
    for history in histories:
        assert history[-1].known_to is None
        assert all(old.known_to == new.known_from for old, new in pairwise(history))
        assert all(old.known_from < new.known_from for old, new in pairwise(history))


def test_history_is_the_list_of_changes_of_an_event(
    changes: list[Change], histories: list[tuple[Version, ...]]
) -> None:
    by_id: dict[str, list[Change]] = {}
    for change in changes:
        by_id.setdefault(change.event_id, []).append(change)
    for history in histories:
        event_id = history[0].event.id
        expected = [Change(version.known_from, event_id, version.kinds) for version in history]
        assert expected == by_id[event_id]


def test_history_up_to_an_instant_knows_nothing_later(
    world: World, histories: list[tuple[Version, ...]]
) -> None:
    longest = max(histories, key=len)
    event_id = longest[0].event.id
    for number, version in enumerate(longest):
        known = world.history(event_id, version.known_from)
        assert known == (*longest[:number], replace(version, known_to=None))


def test_cancellations_are_those_of_the_single_events(world: World) -> None:
    cancelled = world.cancellations_at(NOW)
    assert cancelled == sorted(cancelled)
    assert all(at <= NOW for at, _ in cancelled)
    for at, event_id in cancelled[::50]:
        assert world.cancelled_at(event_id, NOW) == at
        assert world.cancelled_at(event_id, at - SECOND) is None
    assert world.events_at(NOW).keys().isdisjoint(event_id for _, event_id in cancelled)


# The lives of events


def test_the_kinds_of_a_change_are_those_of_its_differences(
    histories: list[tuple[Version, ...]],
) -> None:
    for old, new in steps(histories):
        differing = names_of_changes(old.event, new.event)
        apart = {"cancelled", "withdrawn", "restored"}
        assert set(new.kinds) - apart == differing
        assert len(set(new.kinds)) == len(new.kinds)
        if new.status != "scheduled":
            assert new.kinds == (new.status,)
            assert new.event == old.event


def test_only_a_withdrawn_event_is_restored_and_a_cancelled_one_never(
    histories: list[tuple[Version, ...]],
) -> None:
    for history in histories:
        assert history[0].kinds == ("created",)
        for old, new in pairwise(history):
            assert old.status != "cancelled"
            assert "created" not in new.kinds
            assert ("restored" in new.kinds) == (
                old.status == "withdrawn" and new.status == "scheduled"
            )
            if old.status == "withdrawn":
                assert new.kinds[0] in ("restored", "cancelled")


def test_updated_at_is_the_last_change_of_content(histories: list[tuple[Version, ...]]) -> None:
    for history in histories:
        first = history[0].event
        assert first.updated_at == first.created_at == history[0].known_from
    for old, new in steps(histories):
        unchanged = new.kinds == ("verified",) or new.status != "scheduled"
        expected = old.event.updated_at if unchanged else new.known_from
        assert new.event.updated_at == expected
        if "verified" in new.kinds:
            assert new.event.last_verified_at == new.known_from


def test_identity_never_changes(histories: list[tuple[Version, ...]]) -> None:
    for old, new in steps(histories):
        for name in ("id", "slug", "created_at"):
            assert getattr(old.event, name) == getattr(new.event, name)


def test_lives_have_the_hard_cases_that_a_client_must_handle(
    histories: list[tuple[Version, ...]],
) -> None:
    seen: Counter[str] = Counter()
    for old, new in steps(histories):
        if len(new.kinds) > 1:
            seen["several kinds at once"] += 1
        if "restored" in new.kinds and len(new.kinds) > 1:
            seen["restored with other content"] += 1
        if new.known_from > (old.event.date_end or old.event.date) and new.kinds != ("verified",):
            seen["changed after it passed"] += 1
        if new.known_from - old.known_from <= HOUR:
            seen["two changes within an hour"] += 1
        if "rescored" in new.kinds and None not in (old.event.impact, new.event.impact):
            bands = [
                sum(e.impact >= edge for edge in (2.5, 5, 7.5)) for e in (old.event, new.event)
            ]
            seen["another band" if bands[0] != bands[1] else "the same band"] += 1
        for days in (7, 30, 90):
            window = new.known_from + timedelta(days=days)
            was, is_now = old.event.date <= window, new.event.date <= window
            if was != is_now:
                seen[f"{'into' if is_now else 'out of'} {days} days"] += 1
        changed = [
            f.name
            for f in fields(TrueEvent)
            if getattr(old.event, f.name) != getattr(new.event, f.name)
        ]
        if changed == ["displayed_date", "updated_at"]:
            seen["displayed date alone"] += 1
    for history in histories:
        moves = [version.known_from for version in history if "rescheduled" in version.kinds]
        if any(later - earlier < DAY for earlier, later in pairwise(moves)):
            seen["moved twice in a day"] += 1
        if history[-1].status == "withdrawn":
            seen["withdrawn for good"] += 1
    cases = [
        *("several kinds at once", "restored with other content", "changed after it passed"),
        *("two changes within an hour", "another band", "the same band", "moved twice in a day"),
        *("displayed date alone", "withdrawn for good"),
        *(f"{direction} {days} days" for direction in ("into", "out of") for days in (7, 30, 90)),
    ]
    assert {case: seen[case] for case in cases if seen[case] < 20} == {}


# Events


def test_dates_are_between_2017_and_two_years_after_the_announcement(
    world: World, histories: list[tuple[Version, ...]]
) -> None:
    everything = [*world.events_at(NOW).values(), *(v.event for h in histories for v in h)]
    for event in everything:
        assert datetime(2017, 1, 1, tzinfo=UTC) <= event.date <= event.created_at + 730 * DAY
        if event.date_end is not None:
            assert 1 <= (event.date_end - event.date) / DAY <= 60


def test_displayed_date_is_the_date_in_the_form_of_its_type(world: World) -> None:
    forms = {
        "day": re.compile(r"(\d\d) ([A-Z][a-z]{2})"),
        "month": re.compile(r"([A-Z][a-z]{2}) (\d{4})"),
        "quarter": re.compile(r"Q([1-4]) (\d{4})"),
        "year": re.compile(r"(\d{4})"),
    }
    counts: Counter[str] = Counter()
    for event in world.events_at(NOW).values():
        date = event.date
        day, month = f"{date.day:02d} {MONTHS[date.month - 1]}", MONTHS[date.month - 1]
        if not event.is_estimated:
            assert event.date_type == "date"
            end = event.date_end
            until = "" if end is None else f" → {end.day:02d} {MONTHS[end.month - 1]}"
            assert event.displayed_date == day + until
            counts["exact" if end is None else "span"] += 1
            continue
        assert event.date_end is None
        full = {
            "date": f"By {day}",
            "month": f"{month} {date.year}",
            "quarter": f"Q{(date.month + 2) // 3} {date.year}",
            "year": str(date.year),
        }
        assert event.displayed_date in (full[event.date_type], f"By {day}", full["month"])
        assert any(form.search(event.displayed_date) for form in forms.values())
        if event.date_type != "date":
            next_second = date + SECOND
            assert next_second.day == 1
            assert (next_second.hour, next_second.minute, next_second.second) == (0, 0, 0)
            assert event.date_type != "quarter" or next_second.month in (1, 4, 7, 10)
            assert event.date_type != "year" or next_second.month == 1
        counts[event.date_type] += 1
    assert set(counts) == {"exact", "span", "date", "month", "quarter", "year"}
    assert 0.05 < counts["span"] / counts.total() < 0.12


def test_content_has_the_shape_of_the_interface(world: World) -> None:
    category_ids = {category.id for category in world.categories}
    slugs = {coin.slug for coin in world.coins_at(NOW)}
    missing: Counter[str] = Counter()
    events = world.events_at(NOW)
    for event_id, event in events.items():
        assert event.id == event_id
        assert re.fullmatch(r"[0-9a-f]{24}", event_id)
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", event.slug)
        assert event.title.strip() == event.title != ""
        assert event.categories
        assert category_ids.issuperset(event.categories)
        assert len(set(event.categories)) == len(event.categories)
        assert 1 <= len(event.coins) == len(set(event.coins)) <= 8
        assert slugs.issuperset(event.coins)
        assert event.impact is None or (
            0 <= event.impact <= 10 and round(event.impact, 1) == event.impact
        )
        for f in fields(event):
            value = getattr(event, f.name)
            missing[f.name] += value is None
            if isinstance(value, datetime):
                assert value.tzinfo is UTC
                assert value.microsecond == 0
            if isinstance(value, str):
                assert value.strip() == value != ""
                assert "\r" not in value
    optional = ("description", "impact_summary", "source_url", "snapshot_url", "last_verified_at")
    assert all(0.02 < missing[name] / len(events) < 0.5 for name in optional)
    assert 0 < missing["impact"] / len(events) < 0.05
    assert len({event.slug for event in events.values()}) > 0.999 * len(events)


def test_text_has_the_hard_cases_of_csv(world: World) -> None:
    texts = [(e.title, e.description or "") for e in world.events_at(NOW).values()]
    for awkward in (";", ",", '"', "’"):
        assert sum(awkward in title for title, _ in texts) > 50, awkward
    for awkward in ("\n", ";", ",", '"', "→", "🚀", "中文"):
        assert sum(awkward in description for _, description in texts) > 500, awkward


def test_addresses_are_in_example_domains(world: World) -> None:
    events = world.events_at(NOW).values()
    urls = [url for e in events for url in (e.source_url, e.snapshot_url) if url]
    assert all(re.match(r"https://[a-z]+\.example/", url) for url in urls)


def test_ids_do_not_show_the_order_of_announcement(world: World) -> None:
    ids = list(world.events_at(NOW))
    rising = sum(first < second for first, second in pairwise(ids))
    assert 0.48 < rising / len(ids) < 0.52


# The size of the catalog, and the frequency of changes


def test_the_catalog_is_as_large_as_the_real_one(world: World) -> None:
    events = world.events_at(NOW)
    assert 40_000 <= len(events) <= 50_000
    assert sum(event.date > NOW for event in events.values()) >= 1_500
    by_year = Counter(event.date.year for event in events.values())
    assert all(by_year[year] < by_year[year + 1] for year in range(2017, 2025))


def test_25_to_30_events_are_announced_a_day_lately(changes: list[Change]) -> None:
    per_day = Counter(c.at.date() for c in changes if c.kinds == ("created",))
    assert 25 <= sum(per_day.values()) / len(per_day) <= 30
    assert min(per_day.values()) >= 20


def rates(world: World) -> Counter[str]:
    """Return the lowest count of each kind in any ten days of 2026."""
    least: Counter[str] = Counter({kind: 10**6 for kind in KINDS})
    day = datetime(2026, 1, 1, tzinfo=UTC)
    while day.year == 2026:
        kinds = Counter(k for c in world.changes(day, day + 10 * DAY) for k in c.kinds)
        for kind in KINDS:
            least[kind] = min(least[kind], kinds[kind])
        day += 3 * DAY
    return least


def test_each_kind_of_change_is_frequent(world: World, lively: World) -> None:
    wanted = {
        **{"created": 250, "cancelled": 20, "withdrawn": 20, "restored": 15, "rescheduled": 60},
        **{"made_exact": 25, "made_estimated": 10, "rescored": 60, "revised": 60, "verified": 100},
    }
    at_pace_1, at_pace_2 = rates(world), rates(lively)
    assert {k: at_pace_1[k] for k in KINDS if at_pace_1[k] < wanted[k]} == {}
    assert {k: at_pace_2[k] for k in KINDS if at_pace_2[k] < 25} == {}


# Coins


def test_coins_are_many_and_their_tickers_collide(world: World) -> None:
    coins = world.coins_at(NOW)
    slugs = [coin.slug for coin in coins]
    assert 3_100 <= len(slugs) == len(set(slugs)) <= 3_200
    assert all(re.fullmatch(r"[a-z0-9-]+", slug) for slug in slugs)
    tickers = Counter(coin.symbol for coin in coins)
    assert sum(count > 1 for count in tickers.values()) >= 150
    assert sum(coin.symbol == coin.symbol.lower() for coin in coins) > len(coins) / 2
    assert 0.04 < sum(coin.rank is None for coin in coins) / len(coins) < 0.08
    assert 200 < sum(not coin.tracked for coin in coins) < 800


def test_well_known_coins_have_their_true_names(world: World) -> None:
    known = {coin.slug: (coin.symbol.lower(), coin.name) for coin in world.coins_at(NOW)}
    assert known["bitcoin"] == ("btc", "Bitcoin")
    assert known["matic-network"] == ("matic", "Polygon")
    assert world.coins_at(NOW)[0].slug == "bitcoin"


@settings(max_examples=20, deadline=None)
@given(instant=instants)
def test_coins_are_sorted_by_rank_and_ranks_have_no_gap(world: World, instant: datetime) -> None:
    coins = world.coins_at(instant)
    ranked = [coin.rank for coin in coins if coin.rank is not None]
    assert ranked == list(range(1, len(ranked) + 1))
    unranked = [coin.slug for coin in coins[len(ranked) :]]
    assert unranked == sorted(unranked)


def test_ranks_change_at_midnight_only(world: World) -> None:
    assert world.coins_at(NOW) == world.coins_at(NOW + DAY - SECOND)
    assert world.coins_at(NOW) != world.coins_at(NOW + DAY)


def test_the_top_100_changes_a_little_from_day_to_day(world: World) -> None:
    tops = [{c.slug for c in world.coins_at(NOW + n * DAY)[:100]} for n in range(40)]
    entered = [len(new - old) for old, new in pairwise(tops)]
    assert sum(entered) >= 5
    assert max(entered) <= 6


def test_a_coin_is_unknown_before_its_listing_and_known_afterwards(world: World) -> None:
    known: set[str] = set()
    for year in range(2017, 2031):
        slugs = {coin.slug for coin in world.coins_at(datetime(year, 1, 1, tzinfo=UTC))}
        assert slugs > known
        known = slugs
    assert "solana" not in {c.slug for c in world.coins_at(datetime(2019, 1, 1, tzinfo=UTC))}


def test_an_untracked_coin_gets_no_new_event_and_keeps_those_it_has(
    world: World, changes: list[Change]
) -> None:
    tracked: set[str] = set()
    on_day = None
    for change in changes[-6_000:]:
        if on_day != change.at.date():
            on_day = change.at.date()
            tracked = {coin.slug for coin in world.coins_at(change.at) if coin.tracked}
        if change.kinds[0] == "created" or "revised" in change.kinds:
            history = world.history(change.event_id, change.at)
            before = () if len(history) == 1 else history[-2].event.coins
            assert tracked.issuperset(set(history[-1].event.coins) - set(before))
    events = world.events_at(changes[-1].at).values()
    assert any(not tracked.issuperset(event.coins) for event in events)


def test_a_coin_once_untracked_stays_so_and_some_become_so(world: World) -> None:
    days = [datetime(year, 1, 1, tzinfo=UTC) for year in range(2018, 2028)]
    states = [{coin.slug: coin.tracked for coin in world.coins_at(day)} for day in days]
    dropped = 0
    for old, new in pairwise(states):
        assert not any(new[slug] and not tracked for slug, tracked in old.items())
        dropped += sum(tracked and not new[slug] for slug, tracked in old.items())
    assert dropped > 100


def test_every_python_and_every_release_gives_the_same_catalog() -> None:
    """If you change the catalog on purpose, put the new digest here, and in the changelog."""
    instant = datetime(2017, 3, 1, tzinfo=UTC)
    world = World(1)
    answers = (world.events_at(instant), world.coins_at(instant))
    digest = hashlib.sha256(repr(answers).encode()).hexdigest()
    assert digest[:16] == "66ca8bc39fa36950"
