"""Thirteen days of watching a sandbox through changing plans, landed as a user's Almanac would.

    story = watch(DEFAULT, root / "landing", root / "scratch")

Belongs here: what is looked at and when, and what of it is late, cut short or told twice. Does
not: what follows from it (oracle). The same setting always tells the same story.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from zlib import crc32

from catalog.sandbox.sandbox import Sandbox
from tests.history.model.observations import PLAN_RULES
from tests.history.stories.receiver import Postbox
from tests.history.stories.relanded import first_page_only, with_rows
from tests.history.stories.story import Setting, Story, Teller

DAY, HOUR, SECOND = timedelta(days=1), timedelta(hours=1), timedelta(seconds=1)
PLAN_OF_DAY = (
    *("free", "standard", "pro", "elite", "elite", "standard"),
    *("pro", "free", "free", "elite", "elite", "elite", "elite"),
)
EXPORT_DAYS = {3, 4, 5, 6, 9, 10, 11, 12}
"""While polls are on less than Elite it is pulled on some days too: by another key."""
SPLIT_EXPORTS = {4, 10}
SHORT_EXPORT, OVERCLAIMED_EXPORT = 4, 11
CUT_SHORT = {1, 2, 6, 11}
TIED_WITH_FREE = 9
"""The day on which a list a day old is pulled in the second of the export."""
NOT_LOOKED_AT, BROKEN_CHAIN = 6, 10
"""The day without cancellations and deliveries; the day whose look at them begins too late."""
WHOLE: tuple[date, date | None] = (date(2017, 1, 1), None)
LOOKED_UP = {"withdrawn": 0.05, "restored": 0.03, "cancelled": 0.08}
"""The share of these changes that each poll looks up."""

DEFAULT = Setting(
    seed=3,
    pace=9,
    starts=datetime(2020, 6, 1, tzinfo=UTC),
    polls=("00:00", "09:20", "18:30"),
    posted=("08:00", "17:00", "23:58"),
    look_ups=2,
)
LARGE = Setting(
    seed=11,
    pace=3,
    starts=datetime(2020, 3, 2, tzinfo=UTC),
    polls=("00:00", "02:30", "09:20", "13:45", "18:30", "22:15"),
    posted=("04:00", "08:00", "12:00", "17:00", "21:00", "23:58"),
    look_ups=4,
)


def watch(setting: Setting, root: Path, scratch: Path) -> Story:
    """Land thirteen days of looks in `root`. `scratch` takes what is landed only in part."""
    with (
        Sandbox(seed=setting.seed, pace=setting.pace, now=setting.starts) as sandbox,
        ExitStack() as doors,
    ):
        teller = Teller(setting, sandbox, root, scratch, doors)
        _Watcher(setting, sandbox, teller).watch()
        return teller.story


def chance(*parts: object) -> float:
    """Return a number from 0 to 1 that depends on the parts alone."""
    return crc32("/".join(map(str, parts)).encode()) / 2**32


class _Watcher:
    """Steps through the days; every step is done under the plan of its day."""

    def __init__(self, setting: Setting, sandbox: Sandbox, teller: Teller) -> None:
        self.setting = setting
        self.sandbox = sandbox
        self.world = sandbox.truth()
        self.teller = teller
        self.postbox = Postbox(self.world, setting.source)
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
            "10:00": self.odd_looks,
            "11:00": self.race,
        }
        for self.day, plan_of_day in enumerate(PLAN_OF_DAY):
            if self.day == min(EXPORT_DAYS):
                self.postbox.tell_late_of_cancelled(self.setting.starts, self.now)
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
        """Look at lists, cancellations and single events; every other time all in one second."""
        self.polls += 1
        step = (self.polls % 2) * 7 * SECOND
        turn = self.polls % 6
        if turn == 2:
            self.teller.pull(self.plan, lambda puller: puller.coins())
            if self.plan != "free":
                self.teller.pull(self.plan, lambda puller: puller.categories())
        for bounds, filters in self.ranges(turn):
            self.list_events(bounds, filters)
            self.sandbox.advance(step)
        if turn in (2, 5):
            self.cancellations()
        for event_id in self.to_look_up():
            self.look_up(event_id)
            self.sandbox.advance(step)

    def list_events(
        self, bounds: tuple[date, date | None], filters: dict[str, Sequence[str]]
    ) -> None:
        coins, categories = filters.get("coins"), filters.get("categories")
        self.teller.pull(
            self.plan,
            lambda puller: puller.events(*bounds, coins=coins, categories=categories),
        )

    def look_up(self, event_id: str) -> None:
        self.teller.pull(self.plan, lambda puller: puller.event(event_id))

    def ranges(
        self, turn: int
    ) -> Iterator[tuple[tuple[date, date | None], dict[str, Sequence[str]]]]:
        """Give what the lists of a poll cover: what is near, at times what is far or filtered.

        Some ask for more than the plan shows. What is far is first seen by an export.
        """
        today, plan = self.today, self.plan
        some_coins = [coin.slug for coin in self.world.coins_at(self.now)[turn : 40 + turn]]
        if plan == "free":
            yield (today, today + 7 * DAY), {}
        elif plan == "standard":
            yield (today, today + (120 if turn % 3 == 0 else 21) * DAY), {}
        else:
            yield (today - (45 if turn % 3 == 1 else 2) * DAY, today + 30 * DAY), {}
        if turn == 4:
            yield (today, today + 60 * DAY), {"coins": some_coins}
        if turn == 3 and self.day > min(EXPORT_DAYS) and plan in ("pro", "elite"):
            yield (today + 31 * DAY, None), {}
        if turn == 5 and plan == "elite":
            yield (today, today + 120 * DAY), {"categories": [self.world.categories[0].id]}

    def to_look_up(self) -> list[str]:
        """Return some events that went or came back of late, at times one that nothing befell.

        Those that will be back within days come first: else few would be seen to come back.
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
        chosen = sorted(found, key=lambda item: found[item])[:most]
        self.looked_up.update(chosen)
        return [*chosen, *self.others(seen_at)]

    def others(self, seen_at: datetime) -> list[str]:
        """Return, at times, one that is there, or one that was looked up and is still gone."""
        if self.polls % 6 == 5:
            there = list(self.world.events_at(seen_at))
        elif self.polls % 6 == 2:
            there = [item for item in self.looked_up if self.is_gone(item, seen_at)]
        else:
            return []
        return sorted(there, key=lambda item: chance(item, self.polls))[:1]

    def is_gone(self, event_id: str, seen_at: datetime) -> bool:
        return self.world.status_at(event_id, seen_at) == "withdrawn"

    def cancellations(self) -> None:
        """Look from where the last look ended, once from later, so that the chain is broken."""
        if self.day == NOT_LOOKED_AT:
            return
        since = self.watched_until
        if since is not None and self.day == BROKEN_CHAIN:
            since = max(since, self.now - 11 * HOUR) + HOUR
        manifest = self.teller.pull(self.plan, lambda puller: puller.cancellations(since))
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
            self.teller.pull("free", lambda puller: puller.events(*ahead))
        for bounds in parts:
            self.export_of(bounds)
            self.sandbox.advance(20 * SECOND)

    def export_of(self, bounds: tuple[date, date | None]) -> None:
        self.teller.pull("elite", lambda puller: puller.export(*bounds))

    def cancellations_after_export(self) -> None:
        if self.day in EXPORT_DAYS:
            self.cancellations()

    def odd_looks(self) -> None:
        """Land looks cut short, with and without knowing it, and look-ups that prove nothing."""
        if self.day == SHORT_EXPORT:
            cut = with_rows(0.9)
            self.teller.pull("elite", lambda puller: puller.export(*WHOLE), cut=cut)
        if self.day == OVERCLAIMED_EXPORT:
            cut = with_rows(1.0, claimed=1.05)
            self.teller.pull("elite", lambda puller: puller.export(*WHOLE), cut=cut)
        if self.plan in ("free", "standard"):
            seen_at = self.now - PLAN_RULES[self.plan].lag
            changes = self.world.changes(seen_at - 2 * DAY, seen_at)
            gone = [change.event_id for change in changes if self.is_gone(change.event_id, seen_at)]
            for event_id in gone[: self.setting.look_ups]:
                self.look_up(event_id)
        if self.day in CUT_SHORT:
            ahead = (self.today, self.today + 200 * DAY)
            self.teller.pull(self.plan, lambda puller: puller.events(*ahead), cut=first_page_only)

    def race(self) -> None:
        """Hear of a change at once, and look before the looks can show it, and as soon as."""
        if self.plan != "elite":
            return
        until = self.now + 4 * HOUR
        for kind in ("restored", "created"):
            changes = self.world.changes(self.now, until)
            change = next((change for change in changes if kind in change.kinds), None)
            if change is None:
                continue
            self.postbox.hear_of(change)
            self.sandbox.set_clock(change.at + 20 * SECOND)
            if kind == "restored":
                self.look_up(change.event_id)
            else:
                self.list_events((self.today, self.today + 120 * DAY), {})
            self.sandbox.set_clock(change.at + 60 * SECOND)
            self.look_up(change.event_id)

    def post(self) -> None:
        if self.day in EXPORT_DAYS - {NOT_LOOKED_AT}:
            self.postbox.hear(self.now)
            for post in self.postbox.collect(self.now):
                self.teller.post(post)
