"""`almanac doctor`: looks at everything a run needs, and says what is in its way."""

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

from pipeline.console import EXIT_ERROR, Table, people, print_json, quota_left
from pipeline.health_warnings import LEAST_FREE_BYTES
from pipeline.options import JsonOption
from pipeline.run_checks import checked_runs
from pipeline.secrecy import cautions_of, close_files, files_open_to_others, short_key
from pipeline.service import open_service
from pipeline.settings import Settings, SettingsError, read_settings
from resources.errors import CatalogError
from resources.service_clock import NOTABLE, ServiceClock
from warehouse.attaching import set_aside_foreign_wal
from warehouse.errors import WarehouseError
from warehouse.home import Home
from warehouse.queries import connected
from warehouse.temporary import own_folder

PACKAGES = ("dagster", "duckdb", "httpx", "granian")


@dataclass(frozen=True, slots=True)
class Checked:
    """One thing that was looked at."""

    what: str
    holds: bool
    found: str
    is_caution: bool = False
    """Nothing is in the way, and something should be looked at."""


def doctor(
    fix: Annotated[
        bool,
        typer.Option(
            "--fix",
            help="Mend what can be: files that others can read, a damaged home.json, damaged "
            "records of runs, runs that were cut off.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Check settings, home, disk, versions, key, plan and reach. Costs one or two requests."""
    found = list(_checks(fix=fix))
    if as_json:
        print_json([asdict(one) for one in found])
    else:
        table = Table("", "What", "Found")
        for one in found:
            table.add_row(_mark(one), one.what, one.found)
        people.print(table)
    if not all(one.holds for one in found):
        raise typer.Exit(EXIT_ERROR)


def _mark(one: Checked) -> str:
    return ("!" if one.is_caution else "ok") if one.holds else "NO"


def _checks(*, fix: bool) -> Iterator[Checked]:
    yield Checked("Python", True, platform.python_version())
    for package in PACKAGES:
        yield Checked(package, True, version(package))
    try:
        settings = read_settings()
        source = settings.source
    except SettingsError as error:
        yield Checked("settings", False, str(error))
        return
    yield Checked("source", True, source)
    yield from _secrecy(settings, fix=fix)
    home = Home(settings.home)
    if fix:
        yield from _stamp(home)
    stands = _told("home", lambda: _home(home, source))
    writable = _writable(home.root)
    yield stands
    yield writable
    yield _disk(home.root)
    if home.warehouse.exists():
        yield _told("warehouse", lambda: _warehouse(home))
    if stands.holds:
        for one in checked_runs(home, fix=fix and writable.holds):
            yield Checked(one.what, one.holds, one.found)
    with TemporaryDirectory(prefix="doctor-", dir=own_folder()) as spare:
        is_ours = stands.holds and writable.holds and home.stamp() is not None
        yield from _service(settings, home.state if is_ours else Path(spare))


def _secrecy(settings: Settings, *, fix: bool) -> Iterator[Checked]:
    for caution in (*cautions_of(settings), short_key(settings)):
        if caution:
            yield Checked("secrets", True, caution, is_caution=True)
    if fix:
        closed = close_files(settings)
        if closed:
            yield Checked("files", True, f"{closed:,} are no longer open to others")
    exposed = files_open_to_others(settings)
    if exposed:
        found = f"others can read {exposed}: almanac doctor --fix"
        yield Checked("files", True, found, is_caution=True)


def _stamp(home: Home) -> Iterator[Checked]:
    """Make a stamp again that is damaged; say so where it was."""
    try:
        source = home.mend_stamp()
    except WarehouseError as error:
        yield Checked("home.json", False, str(error))
        return
    if source is not None:
        yield Checked("home.json", True, f"made again, of {source}")


def _home(home: Home, source: str) -> str:
    stamp = home.stamp()
    if stamp is None:
        return f"{home.root}, not made yet"
    home.check(source)
    return f"{home.root}, format {stamp.format}"


def _warehouse(home: Home) -> str:
    """Look whether the published file can be opened; another program's log is set aside."""
    aside = set_aside_foreign_wal(home.warehouse)
    with connected(home.warehouse):
        pass
    if aside is None:
        return str(home.warehouse)
    return f"another program wrote beside {home.warehouse}: that was set aside as {aside.name}"


def _writable(root: Path) -> Checked:
    """Look whether the home can be written, or made where it is not there yet."""
    there = _there(root)
    what = "home writable"
    if not there.is_dir():
        return Checked(what, False, f"{there} is a file; name a folder with ALMANAC_HOME")
    if not os.access(there, os.W_OK | os.X_OK):
        return Checked(what, False, f"{there} can't be written to by this user")
    return Checked(what, True, str(there))


def _disk(root: Path) -> Checked:
    free = shutil.disk_usage(_there(root)).free
    return Checked("disk", free >= LEAST_FREE_BYTES, f"{free / 1e9:.1f} GB free")


def _there(root: Path) -> Path:
    """Return the path, or the nearest above it that is there."""
    return next(path for path in (root.resolve(), *root.resolve().parents) if path.exists())


def _service(settings: Settings, log_folder: Path) -> Iterator[Checked]:
    """Ask the service who we are; what it answers says whether address, key and plan are right."""
    try:
        with open_service(settings, looking_only=log_folder) as service:
            yield Checked("reach", True, "the service answers")
            yield Checked("key and plan", True, service.plan.name)
            usage = service.usage
            if usage is not None:
                yield Checked(
                    "quota",
                    usage.remaining is None or usage.remaining > 0,
                    quota_left(usage.remaining, usage.limit, is_unlimited=usage.is_unlimited),
                )
            yield _clock(service.client.service_clock)
    except (CatalogError, WarehouseError, SettingsError) as error:
        yield Checked("reach, key and plan", False, str(error))


def _clock(heard: ServiceClock) -> Checked:
    """Look how far the service's clock is from the machine's; all is dated by the service's."""
    if heard.offset is None:
        return Checked("clock", False, "the service sent no Date that could be believed")
    size = f"{abs(heard.ahead.total_seconds()):,.0f} s"
    way = "ahead of" if heard.ahead > timedelta(0) else "behind"
    is_kept = abs(heard.ahead) <= NOTABLE
    found = f"the service's is {size} {way} this machine's"
    return Checked("clock", is_kept, found if is_kept else f"{found}: set the machine's right")


def _told(what: str, look: Callable[[], str]) -> Checked:
    try:
        return Checked(what, True, look())
    except WarehouseError as error:
        return Checked(what, False, str(error))
