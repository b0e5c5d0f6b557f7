"""Opens a session with the service of the settings or the embedded sandbox: limiter and home."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from pydantic import SecretStr

from almanac.core.files import own_folder
from almanac.core.timestamps import utc_now
from catalog.contract.plans import PLANS, Plan
from pipeline.home_location import locate_home, restore_home
from pipeline.settings import Settings, SettingsError
from resources.credentials import Redactor
from resources.errors import ContractBroken, RequestRejected
from resources.limits.ledger import (
    SECOND_NS,
    UNKNOWN,
    UNLIMITED,
    Allowance,
    Ledger,
    Pace,
    Work,
    ledger_name,
)
from resources.limits.limiter import Limiter, usable_burst
from resources.request_log import ReportedUsage, RequestLog, last_usage
from resources.service_clock import ServiceClock
from resources.session import CatalogSession, report_price
from warehouse.files.storage import Storage
from warehouse.home import Home

if TYPE_CHECKING:
    from catalog.sandbox.process import SandboxProcess
    from catalog.sandbox.sandbox import Sandbox
    from resources.http.client import CatalogClient


def open_ledger(settings: Settings) -> Ledger | None:
    """Return the machine's ledger of the key; None for the embedded sandbox."""
    found = settings.service_address()
    return None if found is None else Ledger(settings.state / "limits" / ledger_name(*found))


def find_pace(settings: Settings, plan: Plan, state: Allowance) -> Pace:
    """Return the pace of this machine: a setting overrides the rate that the service states for the
    key, which overrides the plan's rate."""
    rate_per_s = settings.rate_per_s or state.rate_per_s or plan.rate_per_s
    burst = settings.burst or state.burst or plan.burst
    return Pace(rate_per_s, usable_burst(rate_per_s, burst))


def count_reserve(settings: Settings, plan: Plan, allowed: int = UNKNOWN) -> int:
    """Return the requests a month that are reserved for daily pulls; 0 without a quota.

    They are a share of this machine's quota: of the setting, or of the stated quota if it is less.
    `allowed` is the stated quota, as in an Allowance; UNKNOWN means the plan's quota.
    """
    stated = {UNKNOWN: plan.monthly_quota, UNLIMITED: None}.get(allowed, allowed)
    bounds = [quota for quota in (settings.monthly_quota, stated) if quota is not None]
    return ceil(min(bounds) * settings.reserve) if bounds else 0


SANDBOX_PLAN: Final = PLANS["elite"]
_PLAN_KNOWN_FOR: Final = timedelta(hours=26)


@dataclass(frozen=True, slots=True)
class _Address:
    base_url: str
    key: SecretStr
    source: str
    ledger: Ledger
    clock: Callable[[], datetime] = utc_now
    sandbox: "Sandbox | SandboxProcess | None" = field(default=None, repr=False)


@dataclass(slots=True)
class OpenedSession(CatalogSession):
    """A session, with the embedded sandbox if it is one."""

    sandbox: "Sandbox | SandboxProcess | None" = None


@contextmanager
def open_service(
    settings: Settings,
    *,
    now: datetime | None = None,
    sandbox: "SandboxProcess | None" = None,
    probe_state: Path | None = None,
    work: Work = "daily",
) -> Iterator[OpenedSession]:
    """Open a session, determine the plan, and claim the home once the service has answered.

    `now` stops the clock of the embedded sandbox; with None it runs in real time. `sandbox` is its
    process; with None it is served from this process. With `probe_state`, a folder for the request
    log, the home is neither claimed nor written to. `work` is the purpose of the requests: each
    kind has its own share of the month.

    Raises:
        SettingsError: the settings contradict each other, or the plan is not known.
        WarehouseError: the home holds data of another source.
        CatalogError: a request to the service failed.
    """
    from resources.http.client import CatalogClient
    from resources.http.network import DIRECT

    home = locate_home(settings)
    with ExitStack() as stack:
        address = _address(settings, stack, now, sandbox)
        if probe_state is None:
            restore_home(home)
            home.check(address.source)
            if home.bucket is not None:
                home.bucket.hold()  # Before a request: another home may be the writer.
        log = RequestLog(probe_state or home.state, address.clock, key=address.key)
        # The embedded sandbox may have any time, and is on this machine: no proxy is in between.
        is_sandbox = address.sandbox is not None
        service_clock = ServiceClock(
            address.clock,
            state=None if is_sandbox else Storage(probe_state or home.state),
            max_skew=None if is_sandbox else timedelta(days=settings.max_clock_skew_days),
        )
        # The usage request is sent before the plan is known, so at the pace of the lowest plan.
        plan = PLANS["free"]
        limiter = Limiter(
            address.ledger,
            lambda state: find_pace(settings, plan, state),
            reserve=lambda state: (
                0 if work == "daily" else count_reserve(settings, plan, state.allowed)
            ),
            machine_quota=settings.monthly_quota,
            clock=service_clock.now,
            sleep=partial(_sleep, address.sandbox),
            # The embedded sandbox has no interval between exports.
            export_interval_s=0.0 if is_sandbox else settings.export_interval_s,
        )
        client = CatalogClient(
            address.base_url,
            address.key,
            limiter=limiter,
            observer=log,
            export_path=settings.export_path,
            export_columns=settings.export_columns,
            page_size=settings.page_size,
            service_clock=service_clock,
            network=DIRECT if is_sandbox else settings.network(),
        )
        stack.enter_context(client)
        usage, known_plan = None, None
        if work == "polls":
            known_plan = _known_plan(settings, home, address, service_clock)
        if known_plan is None:
            usage = _usage(settings, client)
            if usage is not None:
                log.usage(usage)
        plan = _plan(settings, known_plan or (None if usage is None else usage.plan), address.key)
        if probe_state is None:
            # Not earlier: a mistyped address would be written into the stamp.
            home.claim(address.source)
            service_clock.keep()
        counted_here = usage is None or usage.account is None
        if known_plan is not None:
            last = last_usage(home.state)
            # A poll of the embedded sandbox needs no account: its key is new.
            counted_here = is_sandbox or last is None or not last.has_account
        count_here = partial(limiter.count_here, settings.monthly_quota or plan.monthly_quota)
        if counted_here:
            count_here()
        service = OpenedSession(
            client=client,
            plan=plan,
            source=address.source,
            landing=home.landing,
            clock=address.clock,
            log=log,
            usage=usage,
            coins=settings.coins or None,
            categories=settings.categories or None,
            limiter=limiter,
            sandbox=address.sandbox,
        )
        limiter.request_account = count_here if counted_here else service.request_usage
        # The quota of the embedded sandbox is nobody's, but a share is wanted.
        if work == "daily" and probe_state is None and (settings.monthly_quota or not is_sandbox):
            report_price(home.warehouse, service)
        yield service


def _sleep(sandbox: "Sandbox | SandboxProcess | None", seconds: float) -> None:
    if sandbox is None or sandbox.clock.running:
        time.sleep(seconds)
    else:
        # A stopped clock gives no new tokens, so waiting means advancing it.
        sandbox.set_clock(sandbox.clock.now() + timedelta(seconds=seconds))


def _address(
    settings: Settings,
    stack: ExitStack,
    now: datetime | None,
    sandbox: "Sandbox | SandboxProcess | None",
) -> _Address:
    found, ledger = settings.service_address(), open_ledger(settings)
    if found is not None and ledger is not None:
        return _Address(*found, source=found[0], ledger=ledger)
    folder = stack.enter_context(TemporaryDirectory(prefix="sandbox-", dir=own_folder()))
    if sandbox is None:
        from catalog.sandbox.sandbox import Sandbox

        sandbox = Sandbox(seed=settings.sandbox_seed, now=now, state_dir=Path(folder))
        stack.enter_context(sandbox)
    elif now is not None:
        sandbox.set_clock(now)
    plan = PLANS[settings.plan or SANDBOX_PLAN.name]
    ledger = Ledger(
        Path(folder) / "key.sqlite", now_ns=lambda: int(sandbox.clock.now().timestamp() * SECOND_NS)
    )
    with ledger.locked() as state:
        # The key is new, so its bucket is full.
        state.tokens = float(plan.burst)
        state.rate_per_s, state.burst = plan.rate_per_s, plan.burst
    return _Address(
        sandbox.base_url,
        SecretStr(sandbox.keys[plan.name]),
        source=settings.source,
        ledger=ledger,
        clock=sandbox.clock.now,
        sandbox=sandbox,
    )


def _usage(settings: Settings, client: "CatalogClient") -> ReportedUsage | None:
    """Request the usage; None if the service does not report it and the plan is set."""
    try:
        return client.usage()
    except (RequestRejected, ContractBroken):
        if settings.plan is None:
            raise
        return None


def _known_plan(
    settings: Settings, home: Home, address: _Address, service_clock: ServiceClock
) -> str | None:
    """Return the plan if it is known without a request for the usage, which would count against the
    quota.

    The plan is from the settings or the embedded sandbox, or the service reported it within
    the last 26 hours. Without a Date of the service so far, a request is needed to know its day.
    The limiter requests the usage itself if it does not know the month.
    """
    if address.sandbox is not None:
        return settings.plan or SANDBOX_PLAN.name
    if service_clock.heard is None:
        return None
    if settings.plan is not None:
        return settings.plan
    last = last_usage(home.state)
    # The report has the service's time, which may differ from the machine's by days.
    is_fresh = last is not None and service_clock.now() - last.at < _PLAN_KNOWN_FOR
    return last.plan if last is not None and is_fresh else None


def _plan(settings: Settings, stated_plan: str | None, key: SecretStr) -> Plan:
    name = settings.plan or stated_plan
    if name is None or name not in PLANS:
        shown = name if name is None else Redactor(key)(name)
        raise SettingsError(
            f"the service reports the plan {shown!r}, which Almanac does not know. Set "
            f"ALMANAC_PLAN to one of {', '.join(PLANS)}."
        )
    return PLANS[name]
