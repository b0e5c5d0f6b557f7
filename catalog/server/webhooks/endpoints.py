"""The webhook endpoints: the JSON file that the command line writes, and which endpoints get push.

A running server reads the file again when it changes, and asks the key book in each round and
before each attempt: an account that leaves Elite gets nothing more. While a file can't be read, its
last content counts. The file has the secrets, and only its owner may read it; no repr shows them.
"""

import logging
import re
import secrets
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar

import msgspec

from catalog.contract.constants import SIGNATURE_FORMS, SignatureForm
from catalog.contract.plans import PLANS, Plan
from catalog.server.accounts import JsonFile, KeyBook, ServiceDirError
from catalog.server.webhooks.delivery import check_url

FILE_NAME = "endpoints.json"
OVERLAP_HOURS = 24.0
"""How long the old secret signs beside the new one, by default."""
_OVERLAP_HOURS_MAX = 24 * 365
_SECRET_LENGTH_MIN = 16
# Receivers are given several secrets as a list with commas.
_SECRET = re.compile(rf"[!-+\--~]{{{_SECRET_LENGTH_MIN},200}}", re.ASCII)


Instant = Annotated[datetime, msgspec.Meta(tz=True)]


class Secret(msgspec.Struct, frozen=True):
    """A signing secret. Without `expires_at` it does not expire. No repr shows its value."""

    value: str
    created_at: Instant
    expires_at: Instant | None = None

    def __repr__(self) -> str:
        return f"Secret(created_at={self.created_at}, expires_at={self.expires_at})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("created_at", self.created_at), ("expires_at", self.expires_at)]

    def valid_at(self, instant: datetime) -> bool:
        return self.expires_at is None or instant < self.expires_at


def new_secret(token: Callable[[int], str] = secrets.token_hex) -> str:
    """Return a random signing secret."""
    return f"whsec_{token(32)}"


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where an account wants its webhooks. Times are wall time, UTC."""

    id: str
    url: str
    account: str
    secrets: tuple[Secret, ...]
    created_at: Instant
    allow_private: bool = False
    signature: SignatureForm = "t,v1"
    """A file in which an endpoint has none was written when this was the only form."""
    disabled_at: Instant | None = None
    disabled_reason: str | None = None

    def __post_init__(self) -> None:
        """Refuse an endpoint that can't be sent to, also when the file was written manually."""
        if all(secret.expires_at is not None for secret in self.secrets):
            raise ValueError(f"endpoint {self.id} needs a secret that does not expire")

    @property
    def enabled(self) -> bool:
        return self.disabled_at is None

    def signing_secrets(self, instant: datetime) -> tuple[str, ...]:
        """Return the values that sign at a time, the newest first."""
        return tuple(secret.value for secret in self.secrets if secret.valid_at(instant))


class Endpoints(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    format: Literal[1] = 1
    endpoints: tuple[Endpoint, ...] = ()


class EndpointBook:
    """The endpoints of one file. An absent file is an empty book.

    `token` takes a number of bytes and returns that much randomness as text.
    """

    def __init__(
        self,
        path: Path,
        *,
        accounts: KeyBook,
        wall: Callable[[], datetime],
        token: Callable[[int], str] = secrets.token_hex,
    ) -> None:
        self._file = JsonFile(path, Endpoints)
        self._accounts = accounts
        self._wall = wall
        self._token = token
        self._read: tuple[object, tuple[Endpoint, ...]] = (None, ())

    def endpoints(self) -> tuple[Endpoint, ...]:
        """Return all endpoints in the order they were added; read the file if it changed.

        Raises:
            ServiceDirError: the file is not a book of endpoints.
        """
        version = self._file.version()
        if version != self._read[0]:
            self._read = (version, self._file.read().endpoints)
        return self._read[1]

    def get(self, endpoint_id: str) -> Endpoint:
        """Return one endpoint, or raise ServiceDirError."""
        return _find(self.endpoints(), endpoint_id)

    def add(
        self,
        url: str,
        *,
        account: str,
        allow_private: bool = False,
        signature: SignatureForm = SIGNATURE_FORMS[0],
        secret: str | None = None,
    ) -> tuple[Endpoint, str]:
        """Add an endpoint; return it and its signing secret, which is not shown again.

        The secret is made here unless it is given.

        Raises:
            ServiceDirError: the secret that was given can't be one, or by the key book the plan of
                the account has no push (interface section 6).
            TargetRefused: webhooks are not sent to this URL.
            ServiceDirError: one of the two files can't be read.
        """
        check_url(url, allow_private=allow_private)
        reason = why_no_push(account, self._accounts.plans().get(account))
        if reason is not None:
            raise ServiceDirError(f"{reason}; no endpoint was added")
        now = self._wall()
        new = self._new_secret(now, secret)
        endpoint = Endpoint(
            id=f"ep_{self._token(8)}",
            url=url,
            account=account,
            secrets=(new,),
            created_at=now,
            allow_private=allow_private,
            signature=signature,
        )
        with self._file.editing() as edit:
            edit.value = Endpoints(endpoints=(*edit.value.endpoints, endpoint))
        return endpoint, new.value

    def remove(self, endpoint_id: str) -> None:
        """Remove an endpoint; its pending deliveries are not sent."""
        self._change(endpoint_id, lambda _: ())

    def rotate(
        self, endpoint_id: str, *, overlap_hours: float = OVERLAP_HOURS, secret: str | None = None
    ) -> str:
        """Give an endpoint a new secret and return it; older secrets also sign for the overlap.

        The secret is made here unless it is given.

        Raises:
            ServiceDirError: no such endpoint, or the overlap or the secret is not a possible one.
        """
        if not 0 <= overlap_hours <= _OVERLAP_HOURS_MAX:
            raise ServiceDirError(
                f"the overlap must be 0 to {_OVERLAP_HOURS_MAX} hours, got {overlap_hours:g}"
            )
        now = self._wall()
        end = now + timedelta(hours=overlap_hours)
        new = self._new_secret(now, secret)

        def rotated(endpoint: Endpoint) -> tuple[Endpoint]:
            ending = (
                msgspec.structs.replace(old, expires_at=min(old.expires_at or end, end))
                for old in endpoint.secrets
            )
            kept = tuple(old for old in ending if old.valid_at(now))
            return (msgspec.structs.replace(endpoint, secrets=(new, *kept)),)

        self._change(endpoint_id, rotated)
        return new.value

    def sign_as(self, endpoint_id: str, form: SignatureForm) -> None:
        """Change the form of an endpoint's signature, from the next attempt on."""
        self._change(
            endpoint_id, lambda endpoint: (msgspec.structs.replace(endpoint, signature=form),)
        )

    def enable(self, endpoint_id: str) -> None:
        """Send to it from now on; changes of the time when it was disabled are not sent."""
        self._change(
            endpoint_id,
            lambda endpoint: (
                msgspec.structs.replace(endpoint, disabled_at=None, disabled_reason=None),
            ),
        )

    def disable(self, endpoint_id: str, *, reason: str) -> None:
        """Send nothing more to it. An endpoint that is disabled already keeps its first reason."""
        now = self._wall()

        def disabled(endpoint: Endpoint) -> tuple[Endpoint]:
            if not endpoint.enabled:
                return (endpoint,)
            return (msgspec.structs.replace(endpoint, disabled_at=now, disabled_reason=reason),)

        self._change(endpoint_id, disabled)

    def _new_secret(self, now: datetime, given: str | None) -> Secret:
        value = new_secret(self._token) if given is None else given
        if not _SECRET.fullmatch(value):
            raise ServiceDirError(
                f"a signing secret is {_SECRET_LENGTH_MIN} to 200 visible ASCII characters without "
                "a comma; nothing was changed"
            )
        return Secret(value=value, created_at=now)

    def _change(self, endpoint_id: str, change: Callable[[Endpoint], tuple[Endpoint, ...]]) -> None:
        """Replace one endpoint by what `change` returns."""
        with self._file.editing() as edit:
            found = _find(edit.value.endpoints, endpoint_id)
            edit.value = Endpoints(
                endpoints=tuple(
                    kept
                    for endpoint in edit.value.endpoints
                    for kept in (change(endpoint) if endpoint is found else (endpoint,))
                )
            )


def _find(endpoints: tuple[Endpoint, ...], endpoint_id: str) -> Endpoint:
    for endpoint in endpoints:
        if endpoint.id == endpoint_id:
            return endpoint
    raise ServiceDirError(
        f"no such endpoint: {endpoint_id!r}; `almanac accounts endpoints list` lists the endpoints"
    )


def why_no_push(account: str, plan: Plan | None) -> str | None:
    """Return why an account on this plan gets no push; None if it gets it."""
    if plan is None:
        return (
            f"there is no account {account!r} in the key book; `almanac accounts keys create` "
            "makes one with its first key"
        )
    if not plan.webhooks:
        having = ", ".join(plan.name for plan in PLANS.values() if plan.webhooks)
        return (
            f"the account {account!r} is on the plan {plan.name}, which has no push; plans with "
            f"push: {having}"
        )
    return None


log = logging.getLogger(__name__)

T = TypeVar("T")


class NoPush(Exception):
    """Nothing is sent to an endpoint; the text says why."""


class LastRead(Generic[T]):
    """The last readable content of a file."""

    def __init__(self, read: Callable[[], T], what: str) -> None:
        self._read = read
        self._what = what
        self._last: T | None = None
        self._error = ""

    def __call__(self) -> T:
        """Return the content of the file, or its last readable content.

        Raises:
            ServiceDirError: it could not be read yet.
        """
        try:
            self._last = self._read()
        except ServiceDirError as error:
            if self._last is None:
                raise
            if str(error) != self._error:
                log.error("the previous %s stay in use: %s", self._what, error)
            self._error = str(error)
        return self._last


class Receivers:
    """The endpoints of a server with the plans of their accounts."""

    def __init__(self, endpoints: EndpointBook, accounts: KeyBook) -> None:
        self._book = endpoints
        self._endpoints = LastRead(endpoints.endpoints, "endpoints")
        self._plans = LastRead(accounts.plans, "accounts")

    def all(self) -> tuple[Endpoint, ...]:
        return self._endpoints()

    def with_push(self) -> Mapping[str, Plan]:
        """Return the plan of each endpoint that gets push, by the endpoint's id."""
        plans = self._plans()
        return {
            endpoint.id: plans[endpoint.account]
            for endpoint in self._endpoints()
            if self._refusal(endpoint, plans) is None
        }

    def get(self, endpoint_id: str) -> Endpoint:
        """Return an endpoint that gets push.

        Raises:
            NoPush: it was removed or disabled, or its account has no push.
        """
        for endpoint in self._endpoints():
            if endpoint.id == endpoint_id:
                refusal = self._refusal(endpoint, self._plans())
                if refusal is not None:
                    raise NoPush(refusal)
                return endpoint
        raise NoPush("the endpoint was removed")

    def disable(self, endpoint_id: str, *, reason: str) -> None:
        """Disable an endpoint in the book; if that fails, it is served again after a restart."""
        try:
            self._book.disable(endpoint_id, reason=reason)
        except ServiceDirError as error:
            log.warning("webhook endpoint not disabled: endpoint=%s error=%s", endpoint_id, error)

    def _refusal(self, endpoint: Endpoint, plans: Mapping[str, Plan]) -> str | None:
        if not endpoint.enabled:
            return f"the endpoint was disabled: {endpoint.disabled_reason}"
        return why_no_push(endpoint.account, plans.get(endpoint.account))
