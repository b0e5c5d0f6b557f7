"""Who gets push now: endpoints that are enabled, of accounts whose plan has push (decisions).

The key book is asked in each round and before each attempt, so that an account that leaves Elite
gets nothing more. While a file can't be read, what it said last counts. Belongs here: who. Does
not: what is enqueued (change_feed), sending it (sender).
"""

import logging
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from catalog.contract.plans import Plan
from catalog.server.accounts.json_file import JsonFileError
from catalog.server.accounts.keys import KeyBook
from catalog.server.webhooks.endpoints import (
    Endpoint,
    EndpointBook,
    UnknownEndpoint,
    why_no_push,
)

log = logging.getLogger(__name__)

T = TypeVar("T")


class NoPush(Exception):
    """Nothing is sent to an endpoint; the text says why."""


class LastRead(Generic[T]):
    """What a file said when it could be read last."""

    def __init__(self, read: Callable[[], T], what: str) -> None:
        self._read = read
        self._what = what
        self._last: T | None = None
        self._error = ""

    def __call__(self) -> T:
        """Return what the file says, or said last.

        Raises:
            JsonFileError: it could not be read yet.
        """
        try:
            self._last = self._read()
        except JsonFileError as error:
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
        """Disable an endpoint in the book; one that can't be is served again after a restart."""
        try:
            self._book.disable(endpoint_id, reason=reason)
        except (UnknownEndpoint, JsonFileError) as error:
            log.warning("webhook endpoint not disabled: endpoint=%s error=%s", endpoint_id, error)

    def _refusal(self, endpoint: Endpoint, plans: Mapping[str, Plan]) -> str | None:
        if not endpoint.enabled:
            return f"the endpoint was disabled: {endpoint.disabled_reason}"
        return why_no_push(endpoint.account, plans.get(endpoint.account))
