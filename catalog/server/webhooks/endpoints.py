"""The webhook endpoints: the JSON file that the command line writes, and which get push.

A running server reads the file in each round and before each attempt. The file has the secrets, and
only its owner may read it; no repr shows them.
"""

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Annotated

import msgspec

from catalog import ServerError
from catalog.contract.constants import SIGNATURE_FORMS, SignatureForm
from catalog.contract.plans import PLANS, Plan
from catalog.server.accounts import JsonFile, KeyBook
from catalog.server.webhooks.delivery import check_url

FILE_NAME = "endpoints.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where an account wants its webhooks. Times are wall time, UTC."""

    id: str
    url: str
    account: str
    plan_name: str
    secret: str = field(repr=False)
    created_at: Annotated[datetime, msgspec.Meta(tz=True)]
    allow_private: bool = False
    signature: SignatureForm = SIGNATURE_FORMS[0]
    disabled_reason: str | None = None

    @property
    def plan(self) -> Plan:
        return PLANS[self.plan_name]


class EndpointBook:
    """The endpoints of one file. An absent file has none.

    Raises (all methods):
        ServerError: a file can't be read, or it has no such endpoint.
    """

    def __init__(self, path: Path, *, accounts: KeyBook, wall: Callable[[], datetime]) -> None:
        self._file = JsonFile(path, tuple[Endpoint, ...])
        self._accounts = accounts
        self._wall = wall

    def endpoints(self) -> tuple[Endpoint, ...]:
        """Return all endpoints in the order they were added."""
        return self._file.read()

    def receivers(self) -> dict[str, Endpoint]:
        """Return the endpoints that get push, by their ids."""
        return {each.id: each for each in self.endpoints() if each.disabled_reason is None}

    def add(
        self,
        url: str,
        *,
        account: str,
        allow_private: bool = False,
        signature: SignatureForm = SIGNATURE_FORMS[0],
    ) -> Endpoint:
        """Add an endpoint, with a new signing secret.

        Raises:
            ServerError: as above; or the account's plan has no push.
            ServerError: webhooks are not sent to this URL.
        """
        check_url(url, allow_private=allow_private)
        plan = self._accounts.find_plan(account)
        if plan is None:
            raise ServerError(
                f"there is no account {account!r} in the key book; `keys create` makes one with "
                "its first key. No endpoint was added"
            )
        if not plan.webhooks:
            having = ", ".join(plan.name for plan in PLANS.values() if plan.webhooks)
            raise ServerError(
                f"the account {account!r} is on the plan {plan.name}, which has no push; plans "
                f"with push: {having}. No endpoint was added"
            )
        endpoint = Endpoint(
            id=f"ep_{secrets.token_hex(8)}",
            url=url,
            account=account,
            plan_name=plan.name,
            secret=f"whsec_{secrets.token_hex(32)}",
            created_at=self._wall(),
            allow_private=allow_private,
            signature=signature,
        )
        self._file.change(lambda known: (*known, endpoint))
        return endpoint

    def remove(self, endpoint_id: str) -> None:
        self._change(endpoint_id, lambda _: None)

    def disable(self, endpoint_id: str, *, reason: str) -> None:
        self._change(endpoint_id, lambda known: replace(known, disabled_reason=reason))

    def _change(self, endpoint_id: str, change: Callable[[Endpoint], Endpoint | None]) -> None:
        def make(known: tuple[Endpoint, ...]) -> tuple[Endpoint, ...]:
            if endpoint_id not in [each.id for each in known]:
                raise ServerError(f"no such endpoint: {endpoint_id!r}; `endpoints list` lists them")
            changed = (change(each) if each.id == endpoint_id else each for each in known)
            return tuple(filter(None, changed))

        self._file.change(make)
