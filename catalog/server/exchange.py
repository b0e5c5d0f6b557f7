"""One request on its way through the layers: who asks, when, and what the metrics call it."""

from dataclasses import dataclass
from datetime import datetime

from starlette.types import Scope

from catalog.contract.plans import Plan
from catalog.server.grants import Grant

_SCOPE_KEY = "almanac.exchange"


@dataclass(slots=True)
class Exchange:
    """Set up by the outermost layer; the gateway fills in the grant."""

    now: datetime
    """The service's time, the same for the whole request."""
    grant: Grant | None = None
    route: str = "other"

    @property
    def plan(self) -> Plan:
        if self.grant is None:
            raise LookupError("no grant: this route is open, and must not ask for a plan")
        return self.grant.plan


def attach(scope: Scope, exchange: Exchange) -> None:
    scope[_SCOPE_KEY] = exchange


def exchange_of(scope: Scope) -> Exchange:
    exchange: Exchange = scope[_SCOPE_KEY]
    return exchange
