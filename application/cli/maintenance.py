"""`almanac doctor` and `verify`: they diagnose problems, and check all data."""

import os
import platform
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from almanac.console import EXIT_ERROR, JsonOption, Table, fail, people, show_steps
from almanac.core import progress
from almanac.core.errors import AlmanacError, WarehouseError
from almanac.core.files import own_folder
from almanac.reading.attached_file import connected, set_aside_foreign_wal
from application.console import describe_quota, print_json
from pipeline.health.warnings import LEAST_FREE_BYTES
from pipeline.home_location import locate_existing_home, locate_home
from pipeline.secrecy import close_files, files_open_to_others, find_cautions, warn_short_key
from pipeline.service_session import OpenedSession, open_service
from pipeline.settings import Settings, SettingsError, read_settings
from resources.service_clock import MAX_SKEW, NOTABLE, ServiceClock
from warehouse.history.verify import Finding
from warehouse.history.verify import verify as verify_home
from warehouse.home import Home
from warehouse.landing.bucket import Bucket

PACKAGES = ("dagster", "duckdb", "httpx", "granian")


@dataclass(frozen=True, slots=True)
class DoctorCheck:
    """The result of one check."""

    what: str
    holds: bool
    found: str
    is_caution: bool = False
    """The check passes, but a person should look into the finding."""


def doctor(
    fix: Annotated[
        bool,
        typer.Option(
            "--fix",
            help="Repair files that others can read and a damaged home.json. Upload batches that "
            "the bucket lacks.",
        ),
    ] = False,
    service: Annotated[
        bool,
        typer.Option(
            "--service",
            help="Compare each endpoint with what Almanac expects, and show the settings that fit. "
            "Sends at most 12 requests.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Check settings, home, disk, versions, connection, key and plan. Sends one or two requests.

    It sends one more request for each coin of ALMANAC_COINS missing from the published list, up
    to 20.
    """
    found = []
    with show_steps("Checking settings"):
        for check in _checks(fix=fix, endpoints=service):
            found.append(check)
            progress.phase(check.what)
    if as_json:
        print_json([asdict(check) for check in found])
    else:
        table = Table("", "What", "Found")
        for check in found:
            passes = "!" if check.is_caution else "ok"
            table.add_row(passes if check.holds else "NO", check.what, check.found)
        people.print(table)
    if not all(check.holds for check in found):
        raise typer.Exit(EXIT_ERROR)


def _checks(*, fix: bool, endpoints: bool) -> Iterator[DoctorCheck]:
    yield DoctorCheck("Python", True, platform.python_version())
    for package in PACKAGES:
        yield DoctorCheck(package, True, version(package))
    try:
        settings = read_settings()
        source = settings.source
        home = locate_home(settings)
    except SettingsError as error:
        yield DoctorCheck("settings", False, str(error))
        return
    yield DoctorCheck("source", True, source)
    if settings.service_address() or settings.alert_url:
        yield _checked("network", lambda: str(settings.network()))
    yield from _secrecy(settings, fix=fix)
    if settings.push:
        yield _checked("webhooks", lambda: _webhooks(settings))
    if fix:
        yield from _stamp(home)
    yield _checked("home", lambda: _home(home, source))
    yield _writable(home.root)
    yield _disk(home.root)
    if home.bucket is not None:
        yield _bucket(home.bucket, fix=fix)
    if home.warehouse.exists():
        yield _checked("warehouse", lambda: _warehouse(home))
    with TemporaryDirectory(prefix="doctor-", dir=own_folder()) as apart:
        # Not in the home, where the reading would look like one of the data that is there.
        yield from _service(settings, Path(apart), endpoints=endpoints)


def _secrecy(settings: Settings, *, fix: bool) -> Iterator[DoctorCheck]:
    for caution in (*find_cautions(settings), warn_short_key(settings)):
        if caution:
            yield DoctorCheck("secrets", True, caution, is_caution=True)
    if fix:
        closed = close_files(settings)
        if closed:
            yield DoctorCheck("files", True, f"{closed:,} are no longer readable by others")
    exposed = files_open_to_others(settings)
    if exposed:
        found = f"others can read {exposed}: almanac doctor --fix"
        yield DoctorCheck("files", True, found, is_caution=True)


def _stamp(home: Home) -> Iterator[DoctorCheck]:
    try:
        source = home.rebuild_stamp()
    except WarehouseError as error:
        yield DoctorCheck("home.json", False, str(error))
        return
    if source is not None:
        yield DoctorCheck("home.json", True, f"rebuilt, for {source}")


def _home(home: Home, source: str) -> str:
    stamp = home.stamp()
    if stamp is None:
        return f"{home.root}, not created yet"
    home.check(source)
    return f"{home.root}, format {stamp.format}"


def _bucket(bucket: Bucket, *, fix: bool) -> DoctorCheck:
    try:
        if fix:
            bucket.synchronise()
        lacking = bucket.list_lacking()
    except WarehouseError as error:
        return DoctorCheck("bucket", False, str(error))
    found = f"lacks {len(lacking):,} files of landing: almanac doctor --fix"
    return DoctorCheck("bucket", not lacking, f"{bucket.address} {found if lacking else 'has all'}")


def _webhooks(settings: Settings) -> str:
    """Check that `almanac receive` could verify deliveries with the current settings."""
    from application.receiver import make_verifier

    make_verifier(settings)
    count = len(settings.signing_secrets())
    secrets = "1 secret" if count == 1 else f"{count} secrets"
    return f"{settings.signature_header}, {secrets}"


def _warehouse(home: Home) -> str:
    """Check that the published file can be opened; set aside the log of another program."""
    aside = set_aside_foreign_wal(home.warehouse)
    with connected(home.warehouse):
        pass
    foreign = f"another program wrote to a log beside {home.warehouse}; it was set aside as "
    return str(home.warehouse) if aside is None else foreign + aside.name


def _writable(root: Path) -> DoctorCheck:
    existing = _nearest_existing(root)
    what = "home writable"
    if not existing.is_dir():
        return DoctorCheck(what, False, f"{existing} is a file; set ALMANAC_HOME to a folder")
    if not os.access(existing, os.W_OK | os.X_OK):
        return DoctorCheck(what, False, f"this user can't write to {existing}")
    files = existing.rglob("*") if existing == root.resolve() else ()
    unreadable = next((path for path in files if not os.access(path, os.R_OK)), None)
    if unreadable is not None:
        found = f"this user can't read {unreadable}: another account, such as root, wrote to the "
        return DoctorCheck(what, False, f"{found}home. As root: chown -R --reference={root} {root}")
    return DoctorCheck(what, True, str(existing))


def _disk(root: Path) -> DoctorCheck:
    free = shutil.disk_usage(_nearest_existing(root)).free
    return DoctorCheck("disk", free >= LEAST_FREE_BYTES, f"{free / 1e9:.1f} GB free")


def _nearest_existing(root: Path) -> Path:
    return next(path for path in (root.resolve(), *root.resolve().parents) if path.exists())


def _service(settings: Settings, log_folder: Path, *, endpoints: bool) -> Iterator[DoctorCheck]:
    """Check address, key and plan by a usage request to the service, and its endpoints."""
    try:
        with open_service(settings, probe_state=log_folder) as service:
            yield DoctorCheck("reach", True, "the service responds")
            yield DoctorCheck("key and plan", True, service.plan.name)
            usage = service.usage
            if usage is not None:
                left, is_unlimited = usage.remaining, usage.is_unlimited
                text = describe_quota(left, usage.quota, is_unlimited=is_unlimited)
                yield DoctorCheck("quota", left is None or left > 0, text)
            permitted = timedelta(days=settings.max_clock_skew_days)
            yield _clock(service.client.service_clock, permitted)
            if settings.coins:
                yield _watchlist(settings, service)
            if endpoints:
                from application.service_check import check_endpoints

                for check in check_endpoints(service.client, service.plan):
                    holds = check.is_usable and not check.settings
                    yield DoctorCheck(check.call, holds, str(check), bool(check.differences))
    except AlmanacError as error:
        yield DoctorCheck("reach, key and plan", False, str(error))


def _watchlist(settings: Settings, service: OpenedSession) -> DoctorCheck:
    """Check that the service has the coins of the watchlist, and that the plan covers them."""
    from application.service_check import KNOWN, describe_coins, look_up_coins

    watched = look_up_coins(settings.coins, service.client, Home(settings.home).warehouse)
    holds = "unknown" not in watched
    found = describe_coins(watched, service.plan.name)
    return DoctorCheck("watchlist", holds, found, is_caution=holds and not watched.keys() <= KNOWN)


def _clock(service_clock: ServiceClock, permitted: timedelta) -> DoctorCheck:
    """Check how far the service's clock is from the machine's: data is dated by the service's.

    A service whose clock was set, such as a replay, differs a lot. Then `permitted` is raised.
    """
    if service_clock.heard is None:
        return DoctorCheck("clock", False, "the service sent no plausible Date")
    size = f"{abs(service_clock.ahead.total_seconds()):,.0f} s"
    way = "ahead of" if service_clock.ahead > timedelta(0) else "behind"
    found = f"the service's clock is {size} {way} this machine's"
    if abs(service_clock.ahead) <= NOTABLE:
        return DoctorCheck("clock", True, found)
    if permitted > MAX_SKEW:
        allowed = f"{found}, as ALMANAC_MAX_CLOCK_SKEW_DAYS permits for a service with a set time"
        return DoctorCheck("clock", True, allowed, is_caution=True)
    return DoctorCheck("clock", False, f"{found}: correct the machine's clock")


def _checked(what: str, check: Callable[[], str]) -> DoctorCheck:
    try:
        return DoctorCheck(what, True, check())
    except AlmanacError as error:
        return DoctorCheck(what, False, str(error))


def verify(
    deep: Annotated[
        bool,
        typer.Option(
            "--deep",
            help="Also rebuild the warehouse beside it, and compare all rows.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Check that landing, warehouse and Parquet files agree. Exits with 1 if they do not."""
    home = locate_existing_home()
    findings: list[Finding] = []
    unfinished: WarehouseError | None = None
    with show_steps("Verifying"):
        try:
            for finding in verify_home(home, deep=deep):
                findings.append(finding)
                progress.phase(finding.check)
        except WarehouseError as error:
            unfinished = error
    if as_json:
        print_json([asdict(finding) for finding in findings])
    else:
        _show(findings)
    if unfinished is not None:
        fail(str(unfinished))
    if not all(finding.holds for finding in findings):
        raise typer.Exit(EXIT_ERROR)


def _show(findings: list[Finding]) -> None:
    table = Table("Check", "Items checked", "Holds")
    for finding in findings:
        table.add_row(finding.check, f"{finding.looked_at:,}", "yes" if finding.holds else "NO")
    people.print(table)
    for finding in findings:
        for wrong in finding.wrong:
            people.print(f"{finding.check}: {wrong}", soft_wrap=True)
        for note in finding.notes:
            people.print(f"Note: {note}", soft_wrap=True)
