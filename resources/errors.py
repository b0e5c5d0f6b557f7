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

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, Literal

from almanac.core.errors import AlmanacError
from resources.response import ResponseHead

NotDataKind = Literal["html", "json", "text", "empty", "bare_header"]


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


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a request is not sent before `until`: its code and sentence (limits/decision.py).

    `is_stated` is false if the time is estimated.
    """

    code: str
    sentence: str
    until: datetime
    is_stated: bool = True

    @property
    def is_deferral(self) -> bool:
        """Whether the work is deferred; else the process waits."""
        return self.code not in ("rate", "held", "interval")


class Defer(CatalogError):
    """The service won't answer for a long time.

    `resume_at` (UTC) is when it will. `attempts` is 0 if nothing was sent this time.
    """

    def __init__(self, reason: Reason, *, attempts: int = 1) -> None:
        next_step = f"Resume at {reason.until:%Y-%m-%d %H:%M:%S} UTC"
        super().__init__(reason.sentence, next_step=next_step)
        self.reason = reason
        self.resume_at = reason.until
        self.attempts = attempts


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
