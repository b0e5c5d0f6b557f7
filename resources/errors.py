"""The errors of the client, grouped by the caller's next step.

    CatalogError
    ├── RetryLater             no response, or 408, 425, 500, 502 to 504: repeat the call later
    │   ├── QuotaUnknown       the service has not reported the rest of the month
    │   └── TooSlow            a 500 after a long wait: request less, then retry
    ├── Defer                  quota used up, or a long wait requested: resume at `resume_at`
    ├── AccessDenied           401, 402, 403
    │   └── PlanLacksAccess    skip it: the plan does not include it
    ├── RequestRejected        400, 404 of a list, 405, 410, 422, a redirect and the like
    └── ContractBroken         the response breaks the contract of the interface
        ├── TruncatedBody      it ended early (retried before it is raised)
        └── NotData            HTML, a JSON error, nothing or a header without rows instead of data

A ContractBroken itself is over our limits of size or ratio, or lacks a needed field. After
AccessDenied, RequestRejected, ContractBroken or a plain CatalogError, the same call fails until a
person fixes the cause. A plain CatalogError is a problem of this machine: proxy, certificate or
ledger. 404 and 410 of a look-up are answers, not errors. No error shows the key, in its text or in
the objects that it refers to.
"""

from datetime import datetime, timedelta
from typing import ClassVar, Final, Literal

from almanac.core.errors import AlmanacError
from resources.response import ResponseHead

NotDataKind = Literal["html", "json", "text", "empty", "bare_header"]
Reason = Literal["quota", "asked_to_wait", "failing"]
Period = Literal["month", "day"]


class CatalogError(AlmanacError):
    """States the event, the remaining state, and the next step.

    `attempts` counts the requests sent; for a list, `cursor` is where it can continue. `evidence`
    is the response, an `Answer` if its body was read to its end.
    """

    transient: ClassVar[bool] = False
    """Whether the client retries before it raises this."""
    next_step: ClassVar[str] = ""

    def __init__(self, happened: str, *, next_step: str = "") -> None:
        super().__init__(happened)
        self.happened = happened
        self.left = ""
        self.step = next_step or self.next_step
        self.evidence: ResponseHead | None = None
        self.attempts = 1
        self.cursor: str | None = None

    def __str__(self) -> str:
        tries = f" after {self.attempts} attempts" if self.attempts > 1 else ""
        parts = (self.happened + tries, self.left, self.step)
        return " ".join(part.rstrip(".") + "." for part in parts if part)


class RetryLater(CatalogError):
    """Transient, and already retried. `wait_s` is the least wait that the service requested."""

    transient = True
    next_step = "Run it again later to resume"

    def __init__(self, happened: str, *, wait_s: float = 0.0, next_step: str = "") -> None:
        super().__init__(happened, next_step=next_step)
        self.wait_s = wait_s


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


class AccessDenied(CatalogError):
    """401, 402 or 403: the key is missing, unknown, revoked or of another version."""

    next_step = "Check the API key and the base address; a V1 key is not valid for V2"


class PlanLacksAccess(AccessDenied):
    """The key is valid, but its plan does not include this."""

    next_step = "Omit it, or use a key of a higher plan"


class RequestRejected(CatalogError):
    """The service understood the request and rejected it."""

    next_step = "Check the parameters, the base address and the export path"


class ContractBroken(CatalogError):
    """The response breaks the contract of the interface."""

    next_step = "If it recurs, the service or a proxy is at fault: report it"


class TruncatedBody(ContractBroken):
    """The body ended early, or is not complete JSON, gzip or CSV."""

    transient = True


class NotData(ContractBroken):
    """The response is not data; `kind` says what it is, `evidence` holds it."""

    def __init__(self, happened: str, *, kind: NotDataKind) -> None:
        super().__init__(happened)
        self.kind: NotDataKind = kind


FAILED_EXPORT_AGAIN_AFTER: Final = timedelta(hours=3)
"""The wait after a failed export. Then the whole daily pull is repeated, which costs requests
again."""


def defer_failed_export(error: CatalogError, now: datetime) -> Defer:
    """Return the deferral of an export that failed on every attempt."""
    deferral = Defer(error.happened, resume_at=now + FAILED_EXPORT_AGAIN_AFTER, reason="failing")
    deferral.attempts = error.attempts
    deferral.left = error.left
    return deferral
