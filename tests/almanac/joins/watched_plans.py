"""Homes of two plans over one sandbox, and the answers of the joins in plain Python.

The truth is the sandbox's world, folded by the oracle of tests/history; no code of ours takes part.
Belongs here: the pulls, the answer at one instant and coin. Does not: which instants are tried.
"""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from catalog.sandbox.sandbox import Sandbox
from tests.history.model.observations import Showing
from tests.history.model.oracle import Oracle
from tests.history.model.versions import Version
from tests.history.stories.disk import without_syncs
from tests.history.stories.story import Setting, Story, StoryBuilder
from tests.sandbox.true_world import truth_of
from tests.warehouse.answers.plain.dating import DAY, EXACT, dated, days_until, midnight
from warehouse.history.merge import merge
from warehouse.home import Home

US = timedelta(microseconds=1)
SETTING = Setting(
    seed=3,
    pace=8,
    starts=datetime(2018, 2, 3, tzinfo=UTC),
    polls=("00:20", "13:20"),
    posted=(),
    look_ups=0,
)
PLANS = ("standard", "elite")
AGE = timedelta(days=2)


@dataclass(slots=True)
class WatchedPlan:
    """A home of a plan, and all that was known of it, by coin."""

    home: Home
    oracle: Oracle
    story: Story
    by_coin: dict[str, list[Version]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        for version in self.oracle.versions():
            if version.basis == "observed" and dated(version.content)[0] in EXACT:
                for coin in version.content["coins"]:
                    self.by_coin[coin].append(version)

    @property
    def pulls(self) -> list[datetime]:
        """The instants of the pulls of events."""
        batches = self.story.batches
        return [batch.observed_at for batch in batches if batch.feed in ("export", "events")]

    def scheduled(self, coin: str, at: datetime) -> Iterator[Version]:
        """Yield the exact events of a coin, as known at an instant."""
        for version in self.by_coin[coin]:
            if (
                version.known_from <= at
                and (version.known_to is None or at < version.known_to)
                and version.status == "scheduled"
                and self.oracle.events[version.event_id].missing_at(at) is None
            ):
                yield version

    def next_event(self, coin: str, at: datetime, horizon: timedelta) -> dict[str, Any]:
        """Return the columns of the join."""
        if at < min(self.pulls):
            return {"events_ahead": None, "watched": False}
        ahead = {
            (version.content["date"], version.event_id): version
            for version in self.scheduled(coin, at)
            if begun(version) > at and version.content["date"] <= at + horizon
        }
        known = {"events_ahead": len(ahead), "watched": self.is_watched(at, horizon)}
        if not ahead:
            return known
        version = ahead[min(ahead)]
        content, precision = version.content, dated(version.content)[0]
        first_seen_at = self.oracle.events[version.event_id].first_seen_at
        categories = content.get("categories")
        return known | {
            "next_event_id": version.event_id,
            "next_event_title": content["title"],
            "next_event_date": content["date"],
            "next_event_precision": precision,
            "next_event_categories": None if categories is None else "; ".join(categories),
            "next_event_impact": content.get("impact"),
            "next_event_band": content.get("impact_band"),
            "next_event_known_from": version.known_from,
            "next_event_age_days": (at - first_seen_at) / DAY,
            "days_until": days_until(content["date"], precision, at),
        }

    def is_watched(self, at: datetime, horizon: timedelta) -> bool:
        return any(
            batch.feed in ("export", "events")
            and batch.complete
            and batch.observed_at <= at <= batch.observed_at + AGE
            and (batch.scope.lower is None or batch.scope.lower <= midnight(at))
            and (batch.scope.upper is None or at + horizon <= batch.scope.upper)
            for batch in self.story.batches
        )

    def is_blacked_out(self, coin: str, at: datetime, before: timedelta, after: timedelta) -> bool:
        return any(
            version.content["date"] - before <= at < begun(version) + after
            for version in self.scheduled(coin, at)
        )


def begun(version: Version) -> datetime:
    """Return the instant at which an exact event has begun for sure: a day's is its end."""
    starts: datetime = version.content["date"]
    return starts + (DAY if dated(version.content)[0] == "day" else timedelta(0))


def watch_plans(root: Path, days: int) -> dict[str, WatchedPlan]:
    """Pull some days of a small world under each plan, and merge them."""
    with (
        without_syncs(),
        Sandbox(
            seed=SETTING.seed, pace=SETTING.pace, now=SETTING.starts, export_interval_s=0
        ) as sandbox,
        ExitStack() as stack,
    ):
        builders = {
            plan: StoryBuilder(SETTING, sandbox, root / plan / "landing", root / "scratch", stack)
            for plan in PLANS
        }
        for day in range(days):
            for number, poll in enumerate(SETTING.polls):
                hours, minutes = map(int, poll.split(":"))
                at = timedelta(days=day, hours=hours, minutes=minutes)
                sandbox.set_clock(SETTING.starts + at)
                for plan, builder in builders.items():
                    pull(plan, builder, sandbox.clock.now().date(), number)
        showing = Showing(truth_of(sandbox))
        found = {}
        for plan, builder in builders.items():
            home = Home(root / plan)
            merge(home)
            oracle = Oracle(showing)
            for observation in builder.story.folded():
                oracle.fold(observation)
            found[plan] = WatchedPlan(home, oracle, builder.story)
        return found


def pull(plan: str, builder: StoryBuilder, today: date, number: int) -> None:
    """Pull the near events; cancellations once a day, so that some events are missing before."""
    builder.pull(plan, lambda puller: puller.events(today, today + 60 * DAY))
    if number == 0 and plan == "elite":
        builder.pull(plan, lambda puller: puller.export(date(2017, 1, 1), None))
    if number == 1:
        builder.pull(plan, lambda puller: puller.cancellations())
