"""The webhook endpoints: the JSON file that the command line writes, and which endpoints get push.

A running server asks the book and the key book in each round and before each attempt: an account
that leaves Elite gets nothing more. The file has the secrets, and only its owner may read it; no
repr shows them.
"""

import secrets
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec.structs import replace

from catalog import ServerError
from catalog.contract.constants import SIGNATURE_FORMS, SignatureForm
from catalog.contract.plans import PLANS, Plan
from catalog.server.accounts import JsonFile, KeyBook
from catalog.server.webhooks.delivery import check_url

FILE_NAME = "endpoints.json"
OVERLAP_HOURS = 24.0
"""How long the old secret signs beside the new one, by default."""

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


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where an account wants its webhooks. Times are wall time, UTC."""

    id: str
    url: str
    account: str
    secrets: tuple[Secret, ...]
    created_at: Instant
    allow_private: bool = False
    signature: SignatureForm = SIGNATURE_FORMS[0]
    disabled_at: Instant | None = None
    disabled_reason: str | None = None

    def signing_secrets(self, instant: datetime) -> tuple[str, ...]:
        """Return the values that sign at a time, the newest first."""
        return tuple(secret.value for secret in self.secrets if secret.valid_at(instant))


class EndpointFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: Literal[1] = 1
    endpoints: tuple[Endpoint, ...] = ()


class EndpointBook:
    """The endpoints of one file. An absent file has none.

    Raises (all methods):
        ServerError: a file can't be read, or it has no such endpoint.
    """

    def __init__(self, path: Path, *, accounts: KeyBook, wall: Callable[[], datetime]) -> None:
        self._file = JsonFile(path, EndpointFile)
        self._accounts = accounts
        self._wall = wall

    def endpoints(self) -> tuple[Endpoint, ...]:
        """Return all endpoints in the order they were added."""
        return self._file.read().endpoints

    def receivers(self) -> dict[str, tuple[Endpoint, Plan]]:
        """Return the endpoints that get push, with the plans of their accounts, by their ids."""
        plans = self._accounts.plans()
        return {
            endpoint.id: (endpoint, plan)
            for endpoint in self.endpoints()
            if (plan := plans.get(endpoint.account)) and _refusal(endpoint, plan) is None
        }

    def why_no_push(self, endpoint_id: str) -> str | None:
        """Return why an endpoint gets no push; None if it gets it."""
        for endpoint in self.endpoints():
            if endpoint.id == endpoint_id:
                return _refusal(endpoint, self._accounts.plans().get(endpoint.account))
        return "the endpoint was removed"

    def get(self, endpoint_id: str) -> Endpoint:
        for endpoint in self.endpoints():
            if endpoint.id == endpoint_id:
                return endpoint
        raise ServerError(f"no such endpoint: {endpoint_id!r}; `endpoints list` lists them")

    def add(
        self,
        url: str,
        *,
        account: str,
        allow_private: bool = False,
        signature: SignatureForm = SIGNATURE_FORMS[0],
    ) -> tuple[Endpoint, str]:
        """Add an endpoint; return it and its signing secret.

        Raises:
            ServerError: as above; or the account's plan has no push.
            ServerError: webhooks are not sent to this URL.
        """
        check_url(url, allow_private=allow_private)
        new = self._new_secret()
        endpoint = Endpoint(
            id=f"ep_{secrets.token_hex(8)}",
            url=url,
            account=account,
            secrets=(new,),
            created_at=new.created_at,
            allow_private=allow_private,
            signature=signature,
        )
        reason = _refusal(endpoint, self._accounts.plans().get(account))
        if reason is not None:
            raise ServerError(f"{reason}; no endpoint was added")
        with self._file.edit() as edit:
            edit.value = EndpointFile(endpoints=(*edit.value.endpoints, endpoint))
        return endpoint, new.value

    def remove(self, endpoint_id: str) -> None:
        self._change(endpoint_id, lambda _: None)

    def rotate(self, endpoint_id: str, *, overlap_hours: float = OVERLAP_HOURS) -> str:
        """Give an endpoint a new secret and return it; older secrets also sign for the overlap."""
        new = self._new_secret()
        end = new.created_at + timedelta(hours=overlap_hours)

        def rotated(endpoint: Endpoint) -> Endpoint:
            ending = [
                replace(old, expires_at=min(old.expires_at or end, end)) for old in endpoint.secrets
            ]
            kept = [old for old in ending if old.valid_at(new.created_at)]
            return replace(endpoint, secrets=(new, *kept))

        self._change(endpoint_id, rotated)
        return new.value

    def enable(self, endpoint_id: str) -> None:
        """Enable the endpoint: send it all later changes."""
        enabled = {"disabled_at": None, "disabled_reason": None}
        self._change(endpoint_id, lambda old: replace(old, **enabled))

    def disable(self, endpoint_id: str, *, reason: str) -> None:
        disabled = {"disabled_at": self._wall(), "disabled_reason": reason}
        self._change(endpoint_id, lambda old: replace(old, **disabled))

    def _new_secret(self) -> Secret:
        return Secret(value=f"whsec_{secrets.token_hex(32)}", created_at=self._wall())

    def _change(self, endpoint_id: str, change: Callable[[Endpoint], Endpoint | None]) -> None:
        self.get(endpoint_id)
        with self._file.edit() as edit:
            changed = (
                change(endpoint) if endpoint.id == endpoint_id else endpoint
                for endpoint in edit.value.endpoints
            )
            edit.value = EndpointFile(endpoints=tuple(filter(None, changed)))


def _refusal(endpoint: Endpoint, plan: Plan | None) -> str | None:
    account = endpoint.account
    if endpoint.disabled_at is not None:
        return f"the endpoint was disabled: {endpoint.disabled_reason}"
    if plan is None:
        return (
            f"there is no account {account!r} in the key book; `keys create` makes one with "
            "its first key"
        )
    if plan.webhooks:
        return None
    having = ", ".join(plan.name for plan in PLANS.values() if plan.webhooks)
    return (
        f"the account {account!r} is on the plan {plan.name}, which has no push; plans with push: "
        f"{having}"
    )
