"""Thirteen days of watching a sandbox through changing plans, landed as a user's Almanac would.

    story, world = watch(DEFAULT, root / "landing", root / "scratch")

The same setting always gives the same story.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from zlib import crc32

from catalog.sandbox.sandbox import Sandbox
from tests.history.model.observations import PLAN_RULES
from tests.history.stories.receiver import DeliveryReceiver
from tests.history.stories.relanded import first_page_only, with_rows
from tests.history.stories.story import Setting, Story, StoryBuilder
from tests.sandbox.true_world import World, truth_of

DAY, HOUR, SECOND = timedelta(days=1), timedelta(hours=1), timedelta(seconds=1)
PLAN_OF_DAY = (
    *("free", "standard", "pro", "elite", "elite", "standard"),
    *("pro", "free", "free", "elite", "elite", "elite", "elite"),
)
EXPORT_DAYS = {3, 4, 5, 6, 9, 10, 11, 12}
"""On some of these days the polls have a smaller plan: the export then uses another key."""
SPLIT_EXPORTS = {4, 10}
SHORT_EXPORT, OVERCLAIMED_EXPORT = 4, 11
INTERRUPTED = {1, 2, 6, 11}
TIED_WITH_FREE = 9
"""The day on which a list on Free is pulled in the same second as the export."""
NOT_PULLED, BROKEN_CHAIN = 6, 10
"""The day without cancellations and deliveries; the day whose cancellations start too late."""
WHOLE: tuple[date, date | None] = (date(2017, 1, 1), None)
LOOKED_UP = {"withdrawn": 0.05, "restored": 0.03, "cancelled": 0.08}
"""The share of these changes that each poll looks up."""

DEFAULT = Setting(
    seed=3,
    pace=9,
    starts=datetime(2020, 6, 1, tzinfo=UTC),
    polls=("00:00", "09:20", "18:30"),
    posted=("08:00", "17:00", "23:58"),
    look_ups=3,
)
QUICK = replace(
    DEFAULT,
    seed=16,
    pace=11,
    starts=datetime(2017, 10, 1, tzinfo=UTC),
    polls=("00:00",),
    posted=("23:58",),
    look_ups=2,
)
"""Half of the batches and a smaller catalog, with every kind of change and every hard case."""


def watch(setting: Setting, root: Path, scratch: Path) -> tuple[Story, World]:
    """Land thirteen days of pulls in `root`; return also the world that they were pulled from.

    `scratch` takes what is landed only in part.
    """
    with (
        Sandbox(
            seed=setting.seed, pace=setting.pace, now=setting.starts, export_interval_s=0
        ) as sandbox,
        ExitStack() as stack,
    ):
        builder = StoryBuilder(setting, sandbox, root, scratch, stack)
        _Watcher(setting, sandbox, builder).watch()
        return builder.story, truth_of(sandbox)


def chance(*parts: object) -> float:
    """Return a number from 0 to 1 that depends on the parts alone."""
    return crc32("/".join(map(str, parts)).encode()) / 2**32


class _Watcher:
    """Steps through the days; every step is done under the plan of its day."""

    def __init__(self, setting: Setting, sandbox: Sandbox, builder: StoryBuilder) -> None:
        self.setting = setting
        self.sandbox = sandbox
        self.world = truth_of(sandbox)
        self.builder = builder
        self.receiver = DeliveryReceiver(self.world, setting.source)
        self.looked_up: set[str] = set()
        self.watched_until: datetime | None = None
        self.plan = ""
        self.day = 0
        self.polls = 0

    def watch(self) -> None:
        steps = {
            **{time: self.poll for time in self.setting.polls},
            **{time: self.post for time in self.setting.posted},
            "06:00": self.export,
            "06:05": self.cancellations_after_export,
            "10:00": self.odd_pulls,
            "11:00": self.race,
        }
        for self.day, plan_of_day in enumerate(PLAN_OF_DAY):
            if self.day == min(EXPORT_DAYS):
                self.receiver.record_cancelled_late(self.setting.starts, self.now)
            for time in sorted(steps):
                midnight = self.setting.starts + self.day * DAY
                hours, minutes = map(int, time.split(":"))
                self.sandbox.set_clock(midnight + timedelta(hours=hours, minutes=minutes))
                # At midnight Pro's past ends a day later than what it shows.
                over = self.day > TIED_WITH_FREE and time == "00:00"
                self.plan = "pro" if over else plan_of_day
                steps[time]()

    @property
    def now(self) -> datetime:
        return self.sandbox.clock.now()

    @property
    def today(self) -> date:
        return self.now.date()

    def poll(self) -> None:
        """Pull lists, cancellations and single events; every second poll is within one second."""
        self.polls += 1
        step = (self.polls % 2) * 7 * SECOND
        phase = self.polls % 6
        if phase == 2:
            self.builder.pull(self.plan, lambda puller: puller.coins())
            if self.plan != "free":
                self.builder.pull(self.plan, lambda puller: puller.categories())
        for bounds, filters in self.ranges(phase):
            self.list_events(bounds, filters)
            self.sandbox.advance(step)
        if phase in (2, 5):
            self.cancellations()
        for event_id in self.to_look_up():
            self.look_up(event_id)
            self.sandbox.advance(step)

    def list_events(
        self, bounds: tuple[date, date | None], filters: dict[str, Sequence[str]]
    ) -> None:
        coins, categories = filters.get("coins"), filters.get("categories")
        self.builder.pull(
            self.plan,
            lambda puller: puller.events(*bounds, coins=coins, categories=categories),
        )

    def look_up(self, event_id: str) -> None:
        self.builder.pull(self.plan, lambda puller: puller.event(event_id))

    def ranges(
        self, phase: int
    ) -> Iterator[tuple[tuple[date, date | None], dict[str, Sequence[str]]]]:
        """Yield the scopes of a poll's lists: near dates, sometimes distant or filtered ones.

        Some request more than the plan shows. Distant events are first seen in an export.
        """
        today, plan = self.today, self.plan
        some_coins = [coin.slug for coin in self.world.coins_at(self.now)[phase : 40 + phase]]
        if plan == "free":
            yield (today, today + 7 * DAY), {}
        elif plan == "standard":
            yield (today, today + (120 if phase % 3 == 0 else 21) * DAY), {}
        else:
            yield (today - (45 if phase % 3 == 1 else 2) * DAY, today + 30 * DAY), {}
        if phase == 4:
            yield (today, today + 60 * DAY), {"coins": some_coins}
        if phase == 3 and self.day > min(EXPORT_DAYS) and plan in ("pro", "elite"):
            yield (today + 31 * DAY, None), {}
        if phase == 5 and plan == "elite":
            yield (today, today + 120 * DAY), {"categories": [self.world.categories[0].id]}

    def to_look_up(self) -> list[str]:
        """Return some events that were recently withdrawn or restored, sometimes an unchanged one.

        Those that will be restored within days are first: otherwise few would be seen restored.
        """
        seen_at = self.now - PLAN_RULES[self.plan].lag
        found: dict[str, bool] = {}
        for change in self.world.changes(seen_at - 2 * DAY, seen_at):
            event_id = change.event_id
            stays = self.world.event_at(event_id, seen_at + 4 * DAY) is None
            back = not stays and self.world.event_at(event_id, seen_at) is None
            share = 1.0 if back else max(LOOKED_UP.get(kind, 0.0) for kind in change.kinds)
            if event_id not in self.looked_up and chance(event_id, self.polls) < share:
                found[event_id] = stays
        most = self.setting.look_ups if self.plan in ("pro", "elite") else 0
        chosen = sorted(found, key=lambda event_id: found[event_id])[:most]
        self.looked_up.update(chosen)
        return [*chosen, *self.others(seen_at)]

    def others(self, seen_at: datetime) -> list[str]:
        """Return sometimes a scheduled event, or a withdrawn one that was looked up before."""
        if self.polls % 6 == 5:
            there = list(self.world.events_at(seen_at))
        elif self.polls % 6 == 2:
            there = [event for event in self.looked_up if self.is_withdrawn(event, seen_at)]
        else:
            return []
        return sorted(there, key=lambda event_id: chance(event_id, self.polls))[:1]

    def is_withdrawn(self, event_id: str, seen_at: datetime) -> bool:
        return self.world.status_at(event_id, seen_at) == "withdrawn"

    def cancellations(self) -> None:
        """Pull from the end of the last pull, once from later, so that there is a gap."""
        if self.day == NOT_PULLED:
            return
        since = self.watched_until
        if since is not None and self.day == BROKEN_CHAIN:
            since = max(since, self.now - 11 * HOUR) + HOUR
        manifest = self.builder.pull(self.plan, lambda puller: puller.cancellations(since))
        self.watched_until = manifest.content_at

    def export(self) -> None:
        if self.day not in EXPORT_DAYS:
            return
        middle = self.today + 5 * DAY
        parts = [WHOLE]
        if self.day in SPLIT_EXPORTS:
            parts = [(WHOLE[0], middle), (middle + DAY, None)]
        if self.day == TIED_WITH_FREE:
            ahead = (self.today, self.today + 7 * DAY)
            self.builder.pull("free", lambda puller: puller.events(*ahead))
        for bounds in parts:
            self.export_of(bounds)
            self.sandbox.advance(20 * SECOND)

    def export_of(self, bounds: tuple[date, date | None]) -> None:
        self.builder.pull("elite", lambda puller: puller.export(*bounds))

    def cancellations_after_export(self) -> None:
        if self.day in EXPORT_DAYS:
            self.cancellations()

    def odd_pulls(self) -> None:
        """Land interrupted pulls, flagged as such or not, and look-ups that prove nothing."""
        if self.day == SHORT_EXPORT:
            cut = with_rows(0.9)
            self.builder.pull("elite", lambda puller: puller.export(*WHOLE), cut=cut)
        if self.day == OVERCLAIMED_EXPORT:
            cut = with_rows(1.0, claimed=1.05)
            self.builder.pull("elite", lambda puller: puller.export(*WHOLE), cut=cut)
        if self.plan in ("free", "standard"):
            seen_at = self.now - PLAN_RULES[self.plan].lag
            changes = self.world.changes(seen_at - 2 * DAY, seen_at)
            withdrawn = [
                change.event_id for change in changes if self.is_withdrawn(change.event_id, seen_at)
            ]
            for event_id in withdrawn[: self.setting.look_ups]:
                self.look_up(event_id)
        if self.day in INTERRUPTED:
            ahead = (self.today, self.today + 200 * DAY)
            self.builder.pull(self.plan, lambda puller: puller.events(*ahead), cut=first_page_only)

    def race(self) -> None:
        """Record a change at once, and pull before pulls can show it, and when they first can."""
        if self.plan != "elite":
            return
        until = self.now + 4 * HOUR
        for kind in ("restored", "created"):
            changes = self.world.changes(self.now, until)
            change = next((change for change in changes if kind in change.kinds), None)
            if change is None:
                continue
            self.receiver.record_change(change)
            self.sandbox.set_clock(change.at + 20 * SECOND)
            if kind == "restored":
                self.look_up(change.event_id)
            else:
                self.list_events((self.today, self.today + 120 * DAY), {})
            self.sandbox.set_clock(change.at + 60 * SECOND)
            self.look_up(change.event_id)

    def post(self) -> None:
        if self.day in EXPORT_DAYS - {NOT_PULLED}:
            self.receiver.record_changes(self.now)
            for post in self.receiver.collect(self.now):
                self.builder.post(post)
