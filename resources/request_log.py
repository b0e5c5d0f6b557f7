"""The requests sent to the service, one line of JSON for each attempt, and the usage it reported.

    state/requests/YYYY-MM-DD.jsonl   {at, path, status, seconds, bytes, attempt, key_fingerprint,
                                      quota, remaining, reset_at, request_id}
    state/usage.jsonl                 {at, plan, used, quota, is_unlimited, remaining, reset_at,
                                      rate, burst, period_start, period_end}

A line is one write, so several processes may log to one file. The key is never logged:
`key_fingerprint` is the beginning of its SHA-256.
"""

import hashlib
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from threading import Lock, local
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from pydantic import SecretStr

from resources.limits.allowance import UNKNOWN, UNLIMITED
from resources.service_address import checked_key

if TYPE_CHECKING:
    from resources.http.lookups import UsageAnswer
    from resources.http.transport import SentRequest

_DIGITS: Final = 12
_FAILED: Final = 400
_PLAN_CHARS: Final = 500


def fingerprint_of(key: SecretStr | str) -> str:
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
        self._fingerprint = fingerprint_of(key)
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
