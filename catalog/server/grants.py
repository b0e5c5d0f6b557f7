"""Accounts and keys as they are stored, and what a key may do (interface section 5)."""

import hashlib
from datetime import datetime

import msgspec

from catalog.contract.plans import ENTERPRISE, PLANS, Plan


class StoredKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key as the file holds it: never the key itself. Limits of its own are Enterprise's."""

    id: str
    sha256: str
    created_at: datetime
    expires_at: datetime | None = None
    """The end of a rotation's overlap, or the moment of revocation."""
    metered_as: str | None = None
    """The key whose bucket and quota this one goes on drawing on, since it succeeds it."""
    rate_per_s: float | None = None
    burst: int | None = None
    monthly_quota: int | None = None

    def usable(self, now: datetime) -> bool:
        return self.expires_at is None or now < self.expires_at


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the key file."""

    name: str
    plan: str
    keys: tuple[StoredKey, ...] = ()

    def __post_init__(self) -> None:
        if self.plan not in PLANS:
            raise ValueError(f"there is no plan {self.plan!r}; the plans are {', '.join(PLANS)}")


class Accounts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    format: int = 1
    accounts: tuple[Account, ...] = ()


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """What a presented key may do."""

    meter_id: str
    """Whose bucket and quota it draws on: its own id, or that of the key it succeeds."""
    account: str
    plan: Plan
    rate_per_s: float
    burst: int
    monthly_quota: int | None
    sha256: str
    expires_at: datetime | None = None


def grant_of(account: Account, key: StoredKey) -> Grant:
    plan = PLANS[account.plan]
    own = key if plan is ENTERPRISE else None
    return Grant(
        meter_id=key.metered_as or key.id,
        account=account.name,
        plan=plan,
        rate_per_s=(own and own.rate_per_s) or plan.rate_per_s,
        burst=(own and own.burst) or plan.burst,
        monthly_quota=plan.monthly_quota if own is None else own.monthly_quota,
        sha256=key.sha256,
        expires_at=key.expires_at,
    )


def key_digest(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()
