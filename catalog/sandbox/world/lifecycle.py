"""The life of one event: announced, then edited, verified, cancelled, withdrawn and restored.

Belongs here: which moments a life has, in which order, and what each is called. Does not: what an
edit writes (edits.py), queries of lives (world.py). No two moments of a life coincide.
"""

from bisect import bisect_right
from collections.abc import Iterator
from math import exp
from random import Random
from typing import NamedTuple, cast

from catalog.sandbox.world.announcements import Content, announced_in
from catalog.sandbox.world.coins import Roster
from catalog.sandbox.world.dates import DAY_S, month_start_s
from catalog.sandbox.world.edits import Editor

MOMENTS_PER_LIFE = 2.1
"""Mean number of moments drawn per life at pace 1; a cancellation is extra and ends the life."""
CANCELLATIONS_PER_LIFE = 0.15
LIFE_DAYS = 820
"""No moment is further from the announcement, so recent changes need no older lives."""

AFTERWARDS_SHARE = 0.09
FOLLOW_UP_SHARE = 0.22
"""Share of the moments that another of the same kind follows within hours."""
SECOND_EDIT_SHARE = 0.16
RESTORED_SHARE = 0.82
RESTORED_CHANGED_SHARE = 0.35

SCHEDULED, CANCELLED, WITHDRAWN = "scheduled", "cancelled", "withdrawn"
_WITHDRAW = "withdraw"


def _weighted(**weights: int) -> tuple[str, ...]:
    return tuple(act for act, weight in weights.items() for _ in range(weight))


_ON_EXACT = _weighted(
    verify=31, reschedule=16, make_estimated=13, rescore=21, revise=19, withdraw=12
)
_ON_ESTIMATED = _weighted(
    verify=24, reschedule=9, make_exact=80, rescore=15, revise=13, withdraw=11
)
_SECOND = _weighted(verify=4, reschedule=2, rescore=3, revise=3)


class LifeEvent(NamedTuple):
    """A change at an instant (seconds): its kinds, the status after it, the fields set."""

    at: int
    kinds: tuple[str, ...]
    status: str
    delta: Content


class Life(tuple[LifeEvent, ...]):
    """The moments of one event, the announcement first."""

    __slots__ = ()

    def index_at(self, seconds: int) -> int:
        """Return the index of the last moment at or before an instant, -1 before the first."""
        if seconds >= self[-1].at:
            return len(self) - 1
        return bisect_right(self, seconds, key=_instant) - 1

    def content(self, index: int) -> Content:
        """Return the whole content after the moment of an index; the caller must not change it."""
        content = self[0].delta
        if index:
            content = content.copy()
            for moment in self[1 : index + 1]:
                content.update(moment.delta)
        return content


def generate_lives(month: int, roster: Roster, pace: float) -> Iterator[Life]:
    """Yield the lives begun in a month, by announcement; `pace` multiplies their changes."""
    first, end = month_start_s(month) // DAY_S, month_start_s(month + 1) // DAY_S
    coins = roster.tracked_throughout(first, end - 1)
    editor = Editor(Random(f"{roster.seed}/{month}/lives").random, coins, roster.by_slug)
    for content in announced_in(month, roster.seed, coins):
        yield Life(_LifeBuilder(content, editor).write(pace))


def _instant(moment: LifeEvent) -> int:
    return moment.at


class _LifeBuilder:
    """Builds one life from its start to its end."""

    __slots__ = ("editor", "moments", "now", "until")

    def __init__(self, first: Content, editor: Editor) -> None:
        start = first["created_at"]
        self.editor = editor
        self.now = first.copy()
        self.moments = [LifeEvent(start, ("created",), SCHEDULED, first)]
        self.until = start + LIFE_DAYS * DAY_S

    def write(self, pace: float) -> list[LifeEvent]:
        cancelled_at = self._cancellation(pace)
        if cancelled_at:
            self.until = cancelled_at
        count = self._count(MOMENTS_PER_LIFE * pace)
        if count:
            self._add_moments(count)
        if cancelled_at:
            self.moments.append(LifeEvent(cancelled_at, (CANCELLED,), CANCELLED, {}))
        return self.moments

    def _cancellation(self, pace: float) -> int | None:
        r, start = self.editor.r, self.now["created_at"]
        if r() < exp(-CANCELLATIONS_PER_LIFE * pace):
            return None
        return start + 3600 + int((self.now["date"] - start) * (0.03 + 0.97 * r()))

    def _count(self, mean: float) -> int:
        r, floor = self.editor.r, exp(-mean)
        count, product = 0, r()
        while product > floor:
            count, product = count + 1, product * r()
        return count

    def _add_moments(self, count: int) -> None:
        act = ""
        for at, is_follow_up in self._instants(count):
            if not is_follow_up or act in ("", _WITHDRAW):
                act = self._act()
            if at <= self.moments[-1].at:
                continue
            if at >= self.until:
                return
            if act != _WITHDRAW:
                self._edit(act, at)
            elif not self._withdraw(at):
                return

    def _instants(self, count: int) -> list[tuple[int, bool]]:
        r, start = self.editor.r, self.now["created_at"]
        ahead = self.now["date"] - start
        instants: list[tuple[int, bool]] = []
        while len(instants) < count:
            after = ahead if r() < AFTERWARDS_SHARE else 0
            at = start + 60 + after + int((45 * DAY_S if after else ahead) * r())
            instants.append((at, False))
            while len(instants) < count and r() < FOLLOW_UP_SHARE:
                soon = r()
                at += 60 + int(soon * soon * 30_000)
                instants.append((at, True))
        if count > 1:
            instants.sort()
        return instants

    def _act(self) -> str:
        acts = _ON_ESTIMATED if self.now["is_estimated"] else _ON_EXACT
        return acts[int(self.editor.r() * len(acts))]

    def _edit(self, act: str, at: int) -> None:
        kinds, delta = self._edited(act, at)
        if kinds:
            self._add(at, kinds, delta)

    def _edited(self, act: str, at: int) -> tuple[list[str], Content]:
        delta: Content = getattr(self.editor, act)(self.now, at)
        if self.editor.r() < SECOND_EDIT_SHARE:
            other = _SECOND[int(self.editor.r() * len(_SECOND))]
            so_far: Content = {**self.now, **delta}
            second: Content = getattr(self.editor, other)(so_far, at)
            delta = {**delta, **second}
        changed = differences(self.now, delta)
        kinds = kinds_of(changed)
        if kinds and kinds != ["verified"]:
            changed["updated_at"] = at
        return kinds, changed

    def _withdraw(self, at: int) -> bool:
        r = self.editor.r
        self._add(at, [WITHDRAWN], {})
        away = r()
        back_at = at + 600 + int(away * away * 20 * DAY_S)
        if r() > RESTORED_SHARE or back_at >= self.until:
            return False
        kinds: list[str] = []
        delta: Content = {}
        if r() < RESTORED_CHANGED_SHARE:
            kinds, delta = self._edited(_SECOND[int(r() * len(_SECOND))], back_at)
        self._add(back_at, ["restored", *kinds], {**delta, "updated_at": back_at})
        return True

    def _add(self, at: int, kinds: list[str], delta: Content) -> None:
        status = WITHDRAWN if kinds[0] == WITHDRAWN else SCHEDULED
        self.moments.append(LifeEvent(at, tuple(kinds), status, delta))
        self.now.update(delta)


def differences(now: Content, delta: Content) -> Content:
    """Return the fields of a delta that differ from the content as it is."""
    before = cast(dict[str, object], now)
    return cast(Content, {key: value for key, value in delta.items() if before[key] != value})


def kinds_of(changed: Content) -> list[str]:
    """Return the kinds of a change of these fields; new words for a new date are no revision."""
    kinds: list[str] = []
    if "date" in changed or "date_end" in changed:
        kinds.append("rescheduled")
    if "is_estimated" in changed:
        kinds.append("made_estimated" if changed["is_estimated"] else "made_exact")
    redated = bool(kinds)
    if "impact" in changed:
        kinds.append("rescored")
    texts = _TEXTS if redated else _TEXTS_AND_WORDING
    if not texts.isdisjoint(changed):
        kinds.append("revised")
    if "last_verified_at" in changed:
        kinds.append("verified")
    return kinds


_TEXTS = frozenset(
    ("title", "description", "categories", "coins", "impact_summary", "source_url", "snapshot_url")
)
_TEXTS_AND_WORDING = _TEXTS | {"displayed_date", "date_type"}
