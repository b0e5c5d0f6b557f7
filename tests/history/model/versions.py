"""The versions of an event between its changes, and the kinds of a difference of two contents."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime

from tests.history.model.observations import CONTENT_FIELDS, Content, SeenObservation, impact_band

KINDS = (
    *("created", "rescheduled", "made_exact", "made_estimated", "rescored", "revised"),
    *("cancelled", "withdrawn", "restored", "revealed"),
)
COMPARED = tuple(f for f in CONTENT_FIELDS if f not in ("last_verified_at", "updated_at"))
SCHEDULED, CANCELLED, WITHDRAWN = "scheduled", "cancelled", "withdrawn"
_DATES, _SCORES = {"date", "date_end"}, {"impact", "impact_band"}
_WORDING = {"displayed_date", "date_type"}
_OTHER = set(COMPARED) - _DATES - _SCORES - _WORDING - {"is_estimated"}


@dataclass(frozen=True, slots=True)
class Version:
    """A version of an event. `known_to` is exclusive, None for the current one."""

    event_id: str
    version: int
    known_from: datetime
    known_to: datetime | None
    basis: str
    kinds: tuple[str, ...]
    changed: frozenset[str]
    status: str
    cancelled_at: datetime | None
    content: Content
    content_at: datetime
    observation: SeenObservation
    after: datetime | None
    """The content_at of the previous version; None for the first."""

    @property
    def unknown(self) -> frozenset[str]:
        return frozenset(CONTENT_FIELDS) - self.content.keys()


@dataclass(slots=True)
class State:
    """An event as now known. `absent_from` is the first export without it: its number, its time.

    `absent_at` is the newest content time of its absences, None if it is not missing.

    `shown_at` is the content time of its last row: `content_at` may be that of a withdrawal.
    `absences` has the changes of `missing_since`, with their instants.

    `updated_at` is that of the content if it is credible, else None.
    """

    event_id: str
    content: Content
    content_at: datetime
    shown_at: datetime
    first_seen_at: datetime
    last_seen_at: datetime
    status: str = SCHEDULED
    cancelled_at: datetime | None = None
    updated_at: datetime | None = None
    missing_since: datetime | None = None
    doubted_at: datetime | None = None
    absent_from: tuple[int, datetime] | None = None
    absent_at: datetime | None = None
    versions: list[Version] = field(default_factory=list)
    absences: list[tuple[datetime, datetime | None]] = field(default_factory=list)

    def is_newer_than_absence(self, content_at: datetime) -> bool:
        return self.absent_at is None or content_at > self.absent_at

    def was_doubted(self, content_at: datetime) -> bool:
        """Whether a doubted export of an earlier snapshot lacked it since it was last shown."""
        return self.doubted_at is not None and self.content_at < self.doubted_at < content_at

    def accept(self, content_at: datetime) -> datetime:
        """Accept a row, and return the previous content_at."""
        before = self.content_at
        self.content_at, self.shown_at = max(before, content_at), content_at
        return before

    def withdraw(self, observation: SeenObservation) -> None:
        after, self.content_at = self.content_at, observation.content_at
        self.set_missing(observation, None)
        self.status = WITHDRAWN
        self.add(observation, [WITHDRAWN], ["status"], after)

    def set_missing(self, observation: SeenObservation, since: datetime | None) -> None:
        if self.missing_since != since:
            self.absences.append((observation.observed_at, since))
        self.missing_since = since
        if since is None:
            self.absent_from = self.absent_at = None

    def missing_at(self, instant: datetime) -> datetime | None:
        """Return since when it was missing, as known at an instant."""
        known = [since for changed_at, since in self.absences if changed_at <= instant]
        return known[-1] if known else None

    def add(
        self,
        observation: SeenObservation,
        kinds: Iterable[str],
        changed: Iterable[str] = (),
        after: datetime | None = None,
    ) -> None:
        """Add the current state as a version."""
        version = Version(
            event_id=self.event_id,
            version=self.versions[-1].version + 1 if self.versions else 1,
            known_from=observation.observed_at,
            known_to=None,
            basis="observed",
            kinds=tuple(kinds),
            changed=frozenset(changed),
            status=self.status,
            cancelled_at=self.cancelled_at,
            content=self.content,
            content_at=self.content_at if self.status == WITHDRAWN else self.shown_at,
            observation=observation,
            after=after,
        )
        self.versions.append(version)

    def claim(self, observation: SeenObservation) -> None:
        """Add what the service says of the time before the first observation, as claimed versions.

        A version starts at each instant that the service names: created, last updated, cancelled.
        The content is claimed from the last update on, a verification only if it is not later.
        """
        known_from = observation.observed_at
        created_at, updated_at = self.content["created_at"], self.content["updated_at"]
        cancelled_at = self.cancelled_at if self.status == CANCELLED else None
        named = {at for at in (created_at, updated_at, cancelled_at) if at is not None}
        starts = sorted(at for at in named if created_at <= at < known_from)
        for place, start in enumerate(starts, start=1):
            is_cancelled = cancelled_at is not None and cancelled_at <= start
            kinds = [kind for kind, at in _CLAIMED_AT if at(self) == start]
            self.versions.append(
                Version(
                    event_id=self.event_id,
                    version=place - len(starts),
                    known_from=start,
                    known_to=None,
                    basis="claimed",
                    kinds=tuple(kinds),
                    changed=frozenset(),
                    status=CANCELLED if is_cancelled else SCHEDULED,
                    cancelled_at=cancelled_at if is_cancelled else None,
                    content=self._claimed(start),
                    content_at=start,
                    observation=observation,
                    after=None,
                )
            )

    def _claimed(self, start: datetime) -> Content:
        """Return the content that is claimed for an instant before the first observation."""
        if start < self.content["updated_at"]:
            return {"created_at": self.content["created_at"]}
        verified_at = self.content.get("last_verified_at")
        is_later = verified_at is not None and verified_at > start
        return {
            name: value
            for name, value in self.content.items()
            if name != "last_verified_at" or not is_later
        }


_CLAIMED_AT: tuple[tuple[str, Callable[[State], datetime | None]], ...] = (
    ("created", lambda state: state.content["created_at"]),
    (CANCELLED, lambda state: state.cancelled_at if state.status == CANCELLED else None),
)


def in_order(kinds: set[str]) -> tuple[str, ...]:
    return tuple(kind for kind in KINDS if kind in kinds)


def changed_status(state: State, status: str, cancelled_at: datetime | None) -> frozenset[str]:
    pairs = {"status": (state.status, status), "cancelled_at": (state.cancelled_at, cancelled_at)}
    return frozenset(name for name, (before, now) in pairs.items() if before != now)


def merged(before: Content, shown: Content) -> Content:
    """Return the known content after a row: hidden fields keep their previous value."""
    merged = {**before, **shown}
    band_alone = "impact_band" in shown and "impact" not in shown
    if band_alone and "impact" in before and impact_band(before["impact"]) != shown["impact_band"]:
        del merged["impact"]
    return merged


def compared(before: Content, now: Content) -> tuple[set[str], set[str]]:
    """Return the kinds of a change of content, and the fields that changed or became known."""
    changed = {f for f in COMPARED if f in before and (f not in now or before[f] != now[f])}
    revealed = {f for f in COMPARED if f not in before and f in now}
    kinds: set[str] = set()
    redated = bool(changed & (_DATES | {"is_estimated"}))
    if changed & _DATES:
        kinds.add("rescheduled")
    if "is_estimated" in changed:
        kinds.add("made_estimated" if now["is_estimated"] else "made_exact")
    if changed & _SCORES:
        kinds.add("rescored")
    if changed & _OTHER or (changed & _WORDING and not redated):
        kinds.add("revised")
    if revealed:
        kinds.add("revealed")
    return kinds, changed | revealed
