"""Notes about requests in a home: each attempt, the reported usage, deferred and refused pulls.

    state/requests/YYYY-MM-DD.jsonl   {at, path, status, seconds, bytes, attempt, key_fingerprint,
                                      quota, remaining, reset_at, request_id}
    state/usage.jsonl                 {at, plan, used, quota, is_unlimited, remaining, reset_at,
                                      rate, burst, period_start, period_end}
    state/deferred/<work>-<feed>.json a deferred pull: until when, and why
    state/refused/<feed>.json         a feed that the plan or key may not read, and why

A line is one write, so several processes may log to one file. The key is never logged:
`key_fingerprint` is the beginning of its SHA-256. A note is removed when the same pull succeeds;
a backfill has a note of its own (calendar_backfill.py).
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from threading import Lock
from typing import Annotated, Final

import msgspec
from pydantic import SecretStr

from catalog.contract.plans import PLANS
from resources.credentials import check_key
from resources.errors import Defer
from resources.limits.ledger import (
    UNKNOWN,
    UNLIMITED,
    QuotaHeaders,
    ReportedLimits,
    Work,
    next_reset,
)
from warehouse.files.documents import put_note, read_notes
from warehouse.files.storage import Storage
from warehouse.landing.batches import Feed
from warehouse.landing.inbox import PUSH_PLAN

_DIGITS: Final = 12
_PERIOD_MAX: Final = timedelta(days=366)


def fingerprint_key(key: SecretStr | str) -> str:
    """Return a text that differs for each key and does not reveal it."""
    secret = check_key(key).get_secret_value()
    return hashlib.sha256(secret.encode()).hexdigest()[:_DIGITS]


@dataclass(slots=True)
class SentRequest:
    """One attempt. `status` is None if no response was received.

    `seconds` run from sending to the last byte read. `bytes` is the size of the body as sent.
    `attempt` counts the attempts of one call. `quota` is the monthly quota in the headers.
    `request_id` is the service's id of a failed request.
    """

    path: str
    status: int | None = None
    seconds: float = 0.0
    bytes: int = 0
    attempt: int = 1
    quota: QuotaHeaders | None = None
    request_id: str | None = None


Observer = Callable[[SentRequest], None]


class RequestLog:
    """The observer of a client: called after every attempt. Thread-safe.

    `folder` is the home's state folder; `clock` gives aware UTC. `count` is the number of requests
    sent.
    """

    def __init__(self, folder: Path, clock: Callable[[], datetime], *, key: SecretStr) -> None:
        self._folder = folder
        self._clock = clock
        self._fingerprint = fingerprint_key(key)
        self._lock = Lock()
        self.count = 0

    def __call__(self, sent: SentRequest) -> None:
        now, quota = self._clock(), sent.quota
        line = {
            **{"at": now, "path": sent.path, "status": sent.status},
            **{"seconds": round(sent.seconds, 6), "bytes": sent.bytes, "attempt": sent.attempt},
            "key_fingerprint": self._fingerprint,
        }
        if quota is not None:
            line |= {"quota": quota.allowed, "remaining": quota.remaining}
            line["reset_at"] = quota.reset_at
        if sent.request_id is not None:
            line["request_id"] = sent.request_id
        with self._lock:
            self.count += 1
            _append(self._folder / "requests" / f"{now:%Y-%m-%d}.jsonl", line)

    def usage(self, usage: "ReportedUsage") -> None:
        """Log the usage of the month that the service reports, and the end of its version."""
        with self._lock:
            _append(self._folder / "usage.jsonl", usage)


_Aware = Annotated[datetime, msgspec.Meta(tz=True)]


class ReportedUsage(msgspec.Struct, frozen=True, kw_only=True):
    """The monthly usage that the service reports; None means not reported.

    `at` is by the service's clock, `received_at` by the machine's. `is_unlimited`: the service
    reports that there is no quota (Enterprise), and does not just leave it out. `deprecation` and
    `sunset` are headers: this version of the interface will end.
    """

    at: _Aware
    received_at: _Aware | None = None
    plan: str | None = None
    used: int | None = None
    quota: int | None = None
    is_unlimited: bool = False
    remaining: int | None = None
    reset_at: _Aware | None = None
    deprecation: str | None = None
    sunset: str | None = None
    rate: float | None = None
    burst: int | None = None
    period_start: _Aware | None = None
    period_end: _Aware | None = None

    @property
    def allowed(self) -> int:
        """The quota, as in an Allowance."""
        if self.quota is None:
            return UNLIMITED if self.is_unlimited else UNKNOWN
        return self.quota

    @property
    def has_account(self) -> bool:
        """Whether it has both the use and the limit of the month."""
        return self.used is not None and (self.quota is not None or self.is_unlimited)

    @property
    def account(self) -> ReportedLimits | None:
        """The month's limit, use and reset, None if too little of it is reported.

        The reset is by the machine's clock: the service's may differ, as a sandbox's does.
        """
        if self.used is None or not self.has_account or self.received_at is None:
            return None
        reset_at = self.reset_at or self.period_end
        # A reset in the past, or years ahead, would allow no request until then.
        if reset_at is None or not self.at < reset_at <= self.at + _PERIOD_MAX:
            reset_at = next_reset(self.at)
        return ReportedLimits(self.quota, self.used, self.received_at + (reset_at - self.at))


def last_usage(folder: Path) -> ReportedUsage | None:
    """Return the last usage logged in a state folder; lines that can't be read are skipped."""
    path = folder / "usage.jsonl"
    lines = path.read_bytes().splitlines() if path.is_file() else []
    for line in reversed(lines):
        try:
            return msgspec.json.decode(line, type=ReportedUsage)
        except (ValueError, RecursionError):
            continue
    return None


def read_push_plan(folder: Path) -> str:
    """Return the plan of the last usage if it has push, else the lowest plan with push."""
    usage = last_usage(folder)
    plan = None if usage is None else PLANS.get(usage.plan or "")
    return plan.name if plan is not None and plan.webhooks else PUSH_PLAN


def _append(path: Path, line: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(msgspec.json.encode(line) + b"\n")


class DeferredPull(msgspec.Struct, frozen=True, kw_only=True):
    """One deferred pull. Times are aware UTC."""

    work: Work
    feed: Feed
    noted_at: datetime
    resume_at: datetime
    why: str

    @property
    def name(self) -> str:
        return f"deferred/{self.work}-{self.feed}.json"


class RefusedFeed(msgspec.Struct, frozen=True, kw_only=True):
    """A feed that the service refused to a plan. `noted_at` is aware UTC."""

    feed: Feed
    plan: str
    noted_at: datetime
    why: str

    @property
    def name(self) -> str:
        return f"refused/{self.feed}.json"


class DeferredPulls:
    """The notes of a home; `state` is its state folder."""

    def __init__(self, state: Storage) -> None:
        self._state = state

    def note(self, work: Work, feed: Feed, error: Defer, now: datetime) -> None:
        """Write the note of a deferred pull; it replaces an earlier note of the same pull."""
        until, why = error.resume_at, error.happened
        note = DeferredPull(work=work, feed=feed, noted_at=now, resume_at=until, why=why)
        put_note(self._state, note.name, note)

    def done(self, work: Work, feed: Feed) -> None:
        """Remove the note of a pull that has succeeded."""
        self._state.remove(f"deferred/{work}-{feed}.json")

    def settle(self, work: Work, now: datetime) -> None:
        """Remove the due notes of a kind of work that resumes by its own plan."""
        for deferred in self.all():
            if deferred.work == work and deferred.resume_at <= now:
                self.done(work, deferred.feed)

    def all(self) -> list[DeferredPull]:
        """Return every deferred pull, the first to resume first; damaged notes are ignored."""
        found = read_notes(self._state, "deferred", DeferredPull, _wrong)
        return sorted(found, key=lambda deferred: deferred.resume_at)


def read_refused_feeds(state: Storage) -> dict[Feed, RefusedFeed]:
    """Return the feeds that are noted as refused; damaged notes are ignored."""
    return {note.feed: note for note in read_notes(state, "refused", RefusedFeed, _wrong)}


def _wrong(name: str, note: DeferredPull | RefusedFeed) -> str:
    # Under another name it would never be removed.
    return "" if name == note.name else "it belongs to another pull"
