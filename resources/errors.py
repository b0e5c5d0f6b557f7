"""The errors of the client, sorted by what the caller does next.

    CatalogError
    ├── RetryLater             transient and already retried: repeat the call later
    │   ├── Unreachable        no connection, a timeout, a connection closed before the response
    │   ├── ServiceFailing     408, 425, 500, 502, 503, 504
    │   ├── RateHeld           429 for rate or burst, on every attempt
    │   ├── QuotaUnknown       the service has not reported the rest of the month
    │   └── TooSlow            a 500 after a long wait: request less, then retry
    ├── Defer                  quota used up, or a long wait requested: resume at `resume_at`
    └── Stop                   the same call would fail again
        ├── AccessDenied       401, 402, 403
        │   ├── KeyRejected    the key is missing, unknown or revoked
        │   └── PlanLacksAccess
        ├── CertificateRejected    the certificate can't be verified, or there is none
        ├── ProxyRefused       the proxy refuses, or its name can't be resolved
        ├── VersionGone        the version of the interface is gone
        ├── LedgerUnusable     the machine's count of requests can't be stored
        ├── BackfillInProgress another process runs a backfill of the same home
        ├── RequestRejected    400, 404 of a list, 405, 414, 422, 431 and the like
        │   └── NotModified    304: what was received before is still valid
        └── ContractBroken     the response breaks the contract of the interface
            ├── TruncatedBody  it ended early (retried before it is raised)
            ├── NotData        HTML, a JSON error, nothing or a header without rows instead of data
            ├── TooLarge       over our limits of size or ratio
            ├── CursorLoop     a cursor was returned a second time
            └── RunawayPaging  pages without end

404 and 410 of a look-up are answers, not errors. No error shows the key, in its text or in the
objects that it refers to.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import ClassVar, Final, Literal

NotDataKind = Literal["html", "json_error", "json", "empty", "bare_header", "content_type"]
Reason = Literal["quota", "asked_to_wait", "failing"]
Period = Literal["month", "day"]


@dataclass(frozen=True, slots=True)
class Evidence:
    """A response that is not data: its body, or the file with its body, for the caller to keep."""

    status: int
    headers: dict[str, str] = field(repr=False)
    date: datetime
    received_at: datetime
    date_doubt: str = ""
    """Why `date` is not the response's own Date; empty if it is."""
    body: bytes | None = field(default=None, repr=False)
    file: Path | None = None


class CatalogError(Exception):
    """States the event, the expectation, the remaining state, and the next step.

    `attempts` counts the requests that were sent; for a list, `cursor` is where it can continue.
    """

    transient: ClassVar[bool] = False
    """Whether the client retries before it raises this."""
    next_step: ClassVar[str] = ""

    def __init__(
        self,
        happened: str,
        *,
        expected: str = "",
        next_step: str = "",
        evidence: Evidence | None = None,
    ) -> None:
        super().__init__(happened)
        self.happened = happened
        self.expected = expected
        self.left = ""
        self.step = next_step or self.next_step
        self.evidence = evidence
        self.attempts = 1
        self.cursor: str | None = None

    def __str__(self) -> str:
        tries = f" after {self.attempts} attempts" if self.attempts > 1 else ""
        parts = (self.happened + tries, self.expected, self.left, self.step)
        return " ".join(part.rstrip(".") + "." for part in parts if part)


class RetryLater(CatalogError):
    """Transient, and already retried. `wait_s` is the least wait that the service requested."""

    transient = True
    next_step = "Run it again later to resume"

    def __init__(self, happened: str, *, wait_s: float = 0.0, expected: str = "") -> None:
        super().__init__(happened, expected=expected)
        self.wait_s = wait_s


class Unreachable(RetryLater):
    """No response was received: connection refused or lost, or a timeout."""


class ServiceFailing(RetryLater):
    """The service answered 408, 425, 500, 502, 503 or 504."""


class RateHeld(RetryLater):
    """429 for rate or burst, on every attempt."""

    next_step = "If it recurs, lower the rate or burst setting: something else uses the key"


class QuotaUnknown(RetryLater):
    """Nothing is sent before the service has reported the usage of the month."""

    transient = False
    next_step = "Request the usage from the service, then retry"


class TooSlow(RetryLater):
    """The service gave up after a long wait (interface section 7); a retry would end the same."""

    transient = False
    next_step = "Request less: a smaller limit, or half the range of dates"


class Defer(CatalogError):
    """The service won't answer for a long time; `resume_at` (UTC) is when it will.

    `reason` is `quota`, `asked_to_wait`, or `failing` for an export that failed on every attempt.
    `estimated` is true if the service named no time: a quota of a month then ends with the month,
    and one of a day (`period`) at midnight UTC.
    """

    def __init__(
        self,
        happened: str,
        *,
        resume_at: datetime,
        reason: Reason,
        estimated: bool = False,
        period: Period = "month",
    ) -> None:
        super().__init__(happened, next_step=f"Resume at {resume_at:%Y-%m-%d %H:%M:%S} UTC")
        self.resume_at = resume_at
        self.reason: Reason = reason
        self.estimated = estimated
        self.period: Period = period


class Stop(CatalogError):
    """The same call would fail again until somebody changes something."""


class AccessDenied(Stop):
    """401, 402 or 403."""


class KeyRejected(AccessDenied):
    """The key is missing, unknown, revoked or of another version."""

    next_step = "Check the API key and the base address; a V1 key is not valid for V2"


class PlanLacksAccess(AccessDenied):
    """The key is valid, but its plan does not include this."""

    next_step = "Omit it, or use a key of a higher plan"


class CertificateRejected(Stop):
    """The certificate of the other side can't be verified, or it does not speak TLS."""


class ProxyRefused(Stop):
    """The proxy of the settings refuses the connection, or its name can't be resolved."""


class VersionGone(Stop):
    """The service no longer has this version of the interface."""

    next_step = "Update Almanac, and check the base address"


class LedgerUnusable(Stop):
    """The ledger of a key can't be read or written: nothing is sent."""

    next_step = "Set ALMANAC_STATE to a folder on a local disk that this user can write to"


class BackfillInProgress(Stop):
    """Another process runs a backfill of the same home."""

    next_step = "Wait until it ends, then run this again to continue with the rest"


class RequestRejected(Stop):
    """The service understood the request and rejected it."""

    next_step = "Check the parameters, the base address and the export path"


class NotModified(RequestRejected):
    """The service answered 304: what the request named is still valid. It never ends a pull that
    named something; an unexpected one is the service's fault."""


class ContractBroken(Stop):
    """The response breaks the contract of the interface."""

    next_step = "If it recurs, the service or a proxy is at fault: report it"


class TruncatedBody(ContractBroken):
    """The body ended early, or is not complete JSON, gzip or CSV."""

    transient = True


class NotData(ContractBroken):
    """The response is not data; `kind` says what it is, `evidence` holds it."""

    def __init__(
        self, happened: str, *, kind: NotDataKind, evidence: Evidence, expected: str = ""
    ) -> None:
        super().__init__(happened, expected=expected, evidence=evidence)
        self.kind: NotDataKind = kind


class TooLarge(ContractBroken):
    """A body over our limit of size, or of its ratio to the bytes sent."""

    next_step = "Raise the limit if the response is genuine"


class CursorLoop(ContractBroken):
    """A cursor was returned that was already used (A to A, A to B to A)."""


class RunawayPaging(ContractBroken):
    """Pages continue past the total, or have no new row."""


FAILED_EXPORT_AGAIN_AFTER: Final = timedelta(hours=3)
"""The whole daily pull is repeated then, which costs requests."""


def defer_failed_export(error: CatalogError, now: datetime) -> Defer:
    """Return the deferral of an export that failed on every attempt."""
    deferral = Defer(error.happened, resume_at=now + FAILED_EXPORT_AGAIN_AFTER, reason="failing")
    deferral.attempts = error.attempts
    deferral.left = error.left
    return deferral
