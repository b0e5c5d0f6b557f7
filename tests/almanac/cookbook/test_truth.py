"""Answers of the cookbook agree with plain Python over the sandbox's world.

The truth of a pull at 06:00 is the catalog of 00:05, which its export shows, less what was
cancelled until 05:59. It shares no code with the warehouse.
"""

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from catalog.sandbox.world.truth import CATEGORIES, TrueEvent
from catalog.sandbox.world.world import World
from tests.almanac.cookbook.home import DAYS, FIRST
from tests.almanac.cookbook.page import runner
from tests.warehouse.answers.plain.dating import DAY, EXACT, dating, days_until

WORLD = World(1)
NOW = datetime(2021, 3, 24, 9, tzinfo=UTC)
PULLS = [FIRST + number * DAY for number in range(DAYS)]
NAMES = {category.id: category.name for category in CATEGORIES}
LISTING, UNLOCK = "exchange-listing", "token-unlock"


@pytest.fixture(scope="module")
def cookbook(home: Path) -> Iterator[Any]:
    opened = runner().Cookbook(home)
    yield opened
    opened.close()


def answer(cookbook: Any, title: str) -> list[dict[str, Any]]:
    """Return the rows of the Python of the question whose title begins so."""
    (found,) = [each for each in cookbook.questions if each.title.startswith(title)]
    rows: list[dict[str, Any]] = cookbook.answer(found).python
    return rows


def content_at(pull: datetime) -> datetime:
    return pull.replace(hour=0, minute=5)


def cancelled_by(event_id: str, pull: datetime) -> datetime | None:
    return WORLD.cancelled_at(event_id, pull - timedelta(minutes=1))


@cache
def seen(pull: datetime) -> dict[str, TrueEvent]:
    """Return the events that are scheduled, as a pull shows them: those not over by yesterday."""
    return {
        event_id: event
        for event_id, event in WORLD.events_at(content_at(pull)).items()
        if is_covered(event, pull) and cancelled_by(event_id, pull) is None
    }


def is_covered(event: TrueEvent, pull: datetime) -> bool:
    """Whether a pull requests the date of an event: from the day before on."""
    return (event.date_end or event.date) >= (pull - DAY).replace(hour=0)


def seen_at(instant: datetime) -> dict[str, TrueEvent]:
    return seen(max(pull for pull in PULLS if pull <= instant))


def dated(event: TrueEvent) -> tuple[str, datetime | None, datetime]:
    return dating(event.date, event.date_end, event.date_type, is_open=event.is_estimated)


def begun_at(event: TrueEvent) -> datetime:
    """Return when an event with an exact date has begun at the latest."""
    return event.date + (DAY if dated(event)[0] == "day" else timedelta(0))


def is_exact(event: TrueEvent) -> bool:
    return dated(event)[0] in EXACT


def ahead(instant: datetime, within: timedelta) -> list[TrueEvent]:
    """Return the events that may begin within a time, or are in progress; soonest first."""
    found = [
        (earliest or datetime.max.replace(tzinfo=UTC), latest, event_id)
        for event_id, event in seen_at(instant).items()
        for _, earliest, latest in [dated(event)]
        if latest > instant and (earliest is None or earliest < instant + within)
    ]
    return [seen_at(instant)[event_id] for _, _, event_id in sorted(found)]


def test_coming_listings_of_a_coin_are_those_of_the_last_pull(cookbook: Any) -> None:
    expected = [
        event.title
        for event in ahead(NOW, timedelta(days=90))
        if LISTING in event.categories and "ethereum" in event.coins
    ]
    assert len(expected) > 2
    assert [row["title"] for row in answer(cookbook, "Which listings of a coin")] == expected


def test_coming_unlocks_have_the_score_of_then(cookbook: Any) -> None:
    then = datetime(2021, 3, 5, 9, tzinfo=UTC)
    expected = [
        (event.title, event.impact)
        for event in ahead(then, timedelta(days=30))
        if UNLOCK in event.categories and event.impact is not None and event.impact >= 7.5
    ]
    rows = answer(cookbook, "Which token unlocks")
    assert [(row["title"], row["impact"]) for row in rows] == expected != []


def test_clusters_count_the_events_of_a_coin_that_begin_on_a_day(cookbook: Any) -> None:
    counts = Counter(
        (coin, event.date.replace(hour=0, minute=0, second=0))
        for event in seen_at(NOW).values()
        if is_exact(event) and dated(event)[2] > NOW and event.date >= NOW.replace(hour=0)
        for coin in event.coins
    )
    expected = sorted((-count, day, coin) for (coin, day), count in counts.items())[:5]
    rows = answer(cookbook, "On which days")
    assert [(-row["events"], row["day"], row["coin"]) for row in rows] == expected


def test_history_has_a_version_for_each_pull_that_showed_another_content(cookbook: Any) -> None:
    event_id = "28d525418476f76fc7b741b1"
    expected: list[tuple[datetime, float | None, str]] = []
    last: tuple[Any, ...] | None = None
    absent, impact = 0, None
    for pull in PULLS[:20]:  # Later pulls do not cover its last date, 19 March.
        event = seen(pull).get(event_id)
        absent = 0 if event else absent + 1
        # A second complete export without it is the proof that it was withdrawn.
        if event is None and last is not None and absent == 2:
            expected.append((pull, impact, "withdrawn"))
            last = ()
        elif event is not None:
            impact = event.impact
            shown = (event.title, event.displayed_date, event.date, event.date_end, impact)
            if shown != last:
                expected.append((pull, impact, "scheduled"))
            last = shown
    rows = answer(cookbook, "What was known of an event")
    assert [(row["known_from"], row["impact"], row["status"]) for row in rows] == expected


def test_scores_are_those_that_each_pull_showed(cookbook: Any) -> None:
    event_id = "79db2f80aff53cf3c877809b"
    scores = [(pull, seen(pull)[event_id].impact) for pull in PULLS if event_id in seen(pull)]
    expected = [
        (pull, score)
        for number, (pull, score) in enumerate(scores)
        if number == 0 or score != scores[number - 1][1]
    ]
    rows = answer(cookbook, "How did a score")
    assert [(row["known_from"], row["impact"]) for row in rows] == expected


def test_shares_of_cancelled_events_are_of_those_upcoming_at_the_start(cookbook: Any) -> None:
    start = datetime(2021, 3, 3, tzinfo=UTC)
    watched, cancelled = Counter[str](), Counter[str]()
    last = max(pull for pull in PULLS if pull <= start + timedelta(days=21))
    for event_id, event in seen_at(start).items():
        if dated(event)[2] > start:
            watched.update(NAMES[category] for category in event.categories)
            if cancelled_by(event_id, last) is not None:
                cancelled.update(NAMES[category] for category in event.categories)
    expected = {name: (count, cancelled[name]) for name, count in watched.items() if count >= 50}
    rows = answer(cookbook, "What share of watched")
    assert {row["category"]: (row["watched"], row["cancelled"]) for row in rows} == expected


def test_cancelled_events_are_those_that_had_been_shown(cookbook: Any) -> None:
    since = max(pull for pull in PULLS if pull < datetime(2021, 3, 23, tzinfo=UTC))
    expected = []
    for at, event_id in WORLD.cancellations_at(PULLS[-1] - timedelta(minutes=1)):
        shown = [seen(pull)[event_id] for pull in PULLS if event_id in seen(pull)]
        score = shown[-1].impact if shown else None
        if at > since - timedelta(minutes=1) and score is not None and score >= 6:
            expected.append((shown[-1].title, at))
    rows = answer(cookbook, "What was cancelled")
    assert [(row["title"], row["cancelled_at"]) for row in rows] == expected != []


def test_listings_known_three_days_before_have_the_date_that_they_kept(cookbook: Any) -> None:
    final = {event_id: event for pull in PULLS for event_id, event in seen(pull).items()}
    expected = []
    for event_id, event in final.items():
        known_at = event.date - 3 * DAY
        if not is_exact(event) or known_at < FIRST or event.date >= NOW.replace(hour=0):
            continue
        then = last_shown(event_id, known_at)
        if then and then.date == event.date and is_exact(then) and LISTING in then.categories:
            expected.append((known_at, event_id, then.title, then.impact))
    rows = answer(cookbook, "What was known of each listing")
    assert [(row["title"], row["impact"]) for row in rows] == [
        (title, impact) for _, _, title, impact in sorted(expected)
    ]


def last_shown(event_id: str, instant: datetime) -> TrueEvent | None:
    """Return an event as the last pull that had it showed it; None if it was withdrawn since."""
    pulls = [pull for pull in PULLS if pull <= instant]
    shown = [pull for pull in pulls if event_id in seen(pull)]
    if not shown or cancelled_by(event_id, pulls[-1]):
        return None
    event = seen(shown[-1])[event_id]
    without = [pull for pull in pulls if pull > shown[-1] and is_covered(event, pull)]
    return event if len(without) < 2 else None


def test_audit_finds_each_signal_whose_date_was_not_known_at_the_decision(cookbook: Any) -> None:
    expected = []
    for event_id in {event_id for pull in PULLS for event_id in seen(pull)}:
        event = last_shown(event_id, NOW)
        since = datetime(2021, 3, 5, tzinfo=UTC)
        if event is None or LISTING not in event.categories or not is_exact(event):
            continue
        if since <= event.date < NOW.replace(hour=0):
            decided_at = event.date - 3 * DAY
            then = last_shown(event_id, decided_at)
            if then is None or then.date != event.date:
                verdict = "date_not_moved_yet" if then else "not_announced"
                expected.append((decided_at, event_id, verdict))
    rows = answer(cookbook, "Which rows of my back-test")
    assert [(row["decided_at"], row["event_id"], row["verdict"]) for row in rows] == sorted(
        expected
    )


def test_ranks_are_those_of_the_pull_before(cookbook: Any) -> None:
    expected = [
        (coin.slug, coin.rank) for coin in WORLD.coins_at(FIRST) if coin.rank in range(9, 14)
    ]
    rows = answer(cookbook, "Which coins were the largest")
    assert [(row["coin"], row["rank"]) for row in rows] == expected


@pytest.mark.parametrize(
    ("title", "horizon", "least"),
    [("What did my back-test", 7, 0), ("How do I get features", 14, 6)],
)
def test_the_next_event_is_that_of_the_last_pull_before_each_row(
    cookbook: Any, title: str, horizon: int, least: float
) -> None:
    for row in answer(cookbook, title):
        at, coin = row.get("known_at", row["ts"]), row.get("coin", row.get("symbol"))
        expected = [
            event
            for event in seen_at(at).values()
            if is_exact(event)
            and coin in event.coins
            and event.date <= at + horizon * DAY
            and begun_at(event) > at
            and (not least or (event.impact or 0) >= least)
        ]
        assert row["events_ahead"] == len(expected)
        following = min(expected, key=lambda event: (event.date, event.id), default=None)
        assert row["next_event_title"] == (following and following.title)
        if following and "days_until" in row:
            assert row["days_until"] == days_until(following.date, dated(following)[0], at)


def test_blackouts_lie_around_the_events_of_high_impact(cookbook: Any) -> None:
    half_hour = timedelta(minutes=30)
    expected = sorted(
        (event.date - half_hour, coin, begun_at(event) + half_hour)
        for event in seen_at(NOW).values()
        if is_exact(event) and (event.impact or 0) >= 7.5 and begun_at(event) + half_hour > NOW
        for coin in {"bitcoin", "ripple"} & {*event.coins}
    )
    rows = answer(cookbook, "When should a strategy not")
    assert [(row["starts"], row["coin"], row["ends"]) for row in rows] == expected
