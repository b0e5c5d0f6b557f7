"""Notes about requests in a home: each attempt, the reported usage, deferred and refused pulls.

    state/requests/YYYY-MM-DD.jsonl   {at, path, status, seconds, bytes, attempt, key_fingerprint,
                                      quota, remaining, reset_at, request_id}
    state/usage.jsonl                 {at, plan, used, quota, is_unlimited, remaining, reset_at,
                                      rate, burst, period_start, period_end}
    state/deferred/<work>-<feed>.json a deferred pull: until when, and why
    state/refused/<feed>.json         a feed that the plan or key may not read, and why

A line is one write, so several processes may log to one file. The key is never logged:
`key_fingerprint` is the beginning of its SHA-256. A note is removed when the same pull succeeds;
backfills have notes of their own (backfill/state.py).
"""

import hashlib
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from threading import Lock, local
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from pydantic import SecretStr

from resources.errors import Defer
from resources.limits.allowance import UNKNOWN, UNLIMITED, Work
from resources.service_address import checked_key
from warehouse.files.documents import put_note, read_notes
from warehouse.files.storage import Storage
from warehouse.landing.batches import Feed

if TYPE_CHECKING:
    from resources.http.bodies import UsageAnswer
    from resources.http.transport import SentRequest

_DIGITS: Final = 12
_FAILED: Final = 400
_PLAN_CHARS: Final = 500


def fingerprint_key(key: SecretStr | str) -> str:
    """Return a text that differs for each key and does not reveal it."""
    secret = checked_key(key).get_secret_value()
    return hashlib.sha256(secret.encode()).hexdigest()[:_DIGITS]


class RequestLog:
    """The observer of a client: called after every attempt. Thread-safe.

    `folder` is the home's state folder; `clock` gives aware UTC. `count` is the number of requests
    sent, `remaining` the rest of the month by the newest answer that stated it.
    """

    def __init__(self, folder: Path, clock: Callable[[], datetime], *, key: SecretStr) -> None:
        self._folder = folder
        self._clock = clock
        self._fingerprint = fingerprint_key(key)
        self._lock = Lock()
        self._thread = local()
        self.count = 0
        self.remaining: int | None = None

    def __call__(self, sent: "SentRequest") -> None:
        now = self._clock()
        line = {
            "at": now.isoformat(),
            "path": sent.path,
            "status": sent.status,
            "seconds": round(sent.seconds, 6),
            "bytes": sent.bytes,
            "attempt": self._attempt(sent),
            "key_fingerprint": self._fingerprint,
        }
        if sent.quota is not None:
            line |= {
                "quota": sent.quota.allowed,
                "remaining": sent.quota.remaining,
                "reset_at": _text(sent.quota.reset_at),
            }
        if sent.request_id is not None:
            line["request_id"] = sent.request_id
        with self._lock:
            self.count += 1
            if sent.quota is not None and sent.quota.remaining is not None:
                self.remaining = sent.quota.remaining
            _append(self._folder / "requests" / f"{now:%Y-%m-%d}.jsonl", line)

    def usage(
        self, answer: "UsageAnswer", *, deprecation: str | None = None, sunset: str | None = None
    ) -> None:
        """Log the usage of the month that the service reports, and the end of its version."""
        line = {
            "at": answer.date.isoformat(),
            "plan": answer.plan,
            "used": answer.used,
            "quota": answer.limit,
            "is_unlimited": answer.is_unlimited,
            "remaining": answer.remaining,
            "reset_at": _text(answer.reset_at),
            "rate": answer.rate,
            "burst": answer.burst,
            "period_start": _text(answer.period_start),
            "period_end": _text(answer.period_end),
        }
        if deprecation is not None or sunset is not None:
            line |= {"deprecation": _short(deprecation), "sunset": _short(sunset)}
        with self._lock:
            _append(self._folder / "usage.jsonl", line)

    def _attempt(self, sent: "SentRequest") -> int:
        """Return the number of the attempt: the transport does not know to which call it belongs.

        A thread requests the same path again only after a failure.
        """
        path, failures = getattr(self._thread, "last", ("", 0))
        number = failures + 1 if path == sent.path else 1
        failed = sent.status is None or sent.status >= _FAILED
        self._thread.last = (sent.path, number) if failed else ("", 0)
        return number


_Aware = Annotated[datetime, msgspec.Meta(tz=True)]


class ReportedUsage(msgspec.Struct, frozen=True, kw_only=True):
    """The usage of the month that the service reported, as logged."""

    at: _Aware
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
        """Whether it has both the use and the limit of the month, stated or as the rest."""
        has_rest = self.remaining is not None
        has_used = self.used is not None or (self.quota is not None and has_rest)
        is_limited = self.quota is not None or (self.used is not None and has_rest)
        return has_used and (is_limited or self.is_unlimited)


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


def _text(instant: datetime | None) -> str | None:
    return None if instant is None else instant.isoformat()


def _short(text: str | None) -> str | None:
    return None if text is None else text[:_PLAN_CHARS]


def _append(path: Path, line: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(msgspec.json.encode(line) + b"\n")


_FOLDER = "deferred"
_REFUSED = "refused"


class DeferredPull(msgspec.Struct, frozen=True, kw_only=True):
    """One deferred pull. Times are aware UTC."""

    work: Work
    feed: Feed
    noted_at: datetime
    resume_at: datetime
    why: str


class DeferredPulls:
    """The notes of a home; `state` is its state folder."""

    def __init__(self, state: Storage) -> None:
        self._state = state

    def note(self, deferred: DeferredPull) -> None:
        """Write the note of a deferred pull; it replaces an earlier one of the same pull."""
        put_note(self._state, _name(deferred.work, deferred.feed), deferred)

    def done(self, work: Work, feed: Feed) -> None:
        """Remove the note of a pull that has succeeded."""
        self._state.remove(_name(work, feed))

    def settle(self, work: Work, now: datetime) -> None:
        """Remove the notes of a kind of work that are due: it resumes by its own plan."""
        for deferred in self.all():
            if deferred.work == work and deferred.resume_at <= now:
                self.done(work, deferred.feed)

    def all(self) -> list[DeferredPull]:
        """Return every deferred pull, the first to resume first; damaged notes are ignored."""
        found = read_notes(self._state, _FOLDER, DeferredPull, _wrong)
        return sorted(found, key=lambda deferred: deferred.resume_at)


class RefusedFeed(msgspec.Struct, frozen=True, kw_only=True):
    """A feed that the service refused to a plan. `noted_at` is aware UTC."""

    feed: Feed
    plan: str
    noted_at: datetime
    why: str


class RefusedFeeds:
    """The notes of a home; `state` is its state folder."""

    def __init__(self, state: Storage) -> None:
        self._state = state

    def note(self, refused: RefusedFeed) -> None:
        """Write the note of a refused feed; it replaces an earlier one."""
        put_note(self._state, f"{_REFUSED}/{refused.feed}.json", refused)

    def done(self, feed: Feed) -> None:
        """Remove the note of a feed that was received."""
        self._state.remove(f"{_REFUSED}/{feed}.json")

    def all(self) -> dict[Feed, RefusedFeed]:
        """Return the refused feeds; damaged notes are ignored."""
        found = read_notes(self._state, _REFUSED, RefusedFeed, _wrong_feed)
        return {refused.feed: refused for refused in found}


def _wrong_feed(name: str, note: RefusedFeed) -> str:
    return "" if name == f"{_REFUSED}/{note.feed}.json" else "it belongs to another feed"


def deferred_pull(work: Work, feed: Feed, error: Defer, now: datetime) -> DeferredPull:
    """Return the note of a pull that an error deferred."""
    return DeferredPull(
        work=work, feed=feed, noted_at=now, resume_at=error.resume_at, why=error.happened
    )


def _wrong(name: str, note: DeferredPull) -> str:
    # Under another name it would never be removed.
    return "" if name == _name(note.work, note.feed) else "it belongs to another pull"


def _name(work: Work, feed: Feed) -> str:
    return f"{_FOLDER}/{work}-{feed}.json"
