"""The checks of `almanac doctor` on Dagster's records of runs, with their repair, and on coins."""

import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pipeline.runs.dead_runs import (
    DeadRun,
    describe_dead_runs,
    fail_dead_runs,
    find_dead_runs,
    read_presence,
)
from pipeline.runs.place import CONFIG, InstancePlace, is_changed, place_of
from pipeline.runs.store import Damage, damages, set_aside
from warehouse.clock import utc_now
from warehouse.errors import LockHeld, WarehouseError
from warehouse.home import Home
from warehouse.queries import connected
from warehouse.sql import Statements

if TYPE_CHECKING:
    from resources.http.client import CatalogClient

_SQL: Final = Statements(__package__)
_FIX: Final = "`almanac doctor --fix` marks it failed; so does the next `almanac run`"

_WAIT_S: Final = 1.0
"""Enough for a command that is just ending."""


@dataclass(frozen=True, slots=True)
class RunCheck:
    """The result of one check: its subject, whether it holds, and what was found."""

    what: str
    holds: bool
    found: str


def check_runs(home: Home, *, fix: bool) -> Iterator[RunCheck]:
    """Check that Dagster's databases are sound, and that each run in progress has a process."""
    mended: list[str] = []
    try:
        place = place_of(home)
        if fix and place.folder.exists():
            mended = _repair(home, place)
        found = damages(home, thorough=True)
    except (WarehouseError, OSError) as error:
        yield RunCheck("run records", False, f"not repaired: {error}" if fix else str(error))
        return
    problems = "; ".join(str(damage.error(home)) for damage in found) or _describe_place(place)
    yield RunCheck("run records", not found, "; ".join([*mended, problems]))
    if not found:
        yield _check_dead_runs(home)


def _check_dead_runs(home: Home) -> RunCheck:
    what = "runs in progress"
    try:
        dead = _dead_runs(home)
    except WarehouseError as error:
        return RunCheck(what, False, str(error))
    if not dead:
        return RunCheck(what, True, "each has a process")
    return RunCheck(what, False, f"{describe_dead_runs(dead)}: {_FIX}")


def _describe_place(place: InstancePlace) -> str:
    """Return what is known of sound records: where they are, if not in the home as generated."""
    config = place.folder / CONFIG
    if place.is_own:
        return (
            f"sound; {config} was changed by a person, and is kept"
            if is_changed(config)
            else "sound"
        )
    if place.databases is None:
        return f"in {place.storage}, as {config} names it; that database is not checked here"
    return f"sound, in {place.databases}"


def _dead_runs(home: Home) -> list[DeadRun]:
    """Return the dead runs; Dagster is imported only if a process that executed runs has ended.

    Raises:
        RunRecordsUnusable: the records can't be read.
    """
    if not read_presence(home).ended:
        return []
    from pipeline.instance import instance_of

    with instance_of(home) as instance:
        return find_dead_runs(home, instance)


def _repair(home: Home, place: InstancePlace) -> list[str]:
    """Replace damaged databases and fail dead runs; return what was done.

    Databases outside the home belong to others: they are not replaced.

    Raises:
        LockHeld: another command uses the home.
        OSError: the folder can't be written to.
        RunRecordsUnusable: the records can't be read.
    """
    done: list[str] = []
    if not damages(home, thorough=True) and not _dead_runs(home):
        return done
    with _lock_home(home):
        for damage in damages(home, thorough=True) if place.is_own else ():
            if damage.kind == "damaged" or damage.is_unreadable:
                done.append(_repair_database(damage))
        # Imported here, since importing Dagster takes longer than all the rest.
        from pipeline.instance import instance_of

        with instance_of(home) as instance:
            for run in fail_dead_runs(home, instance):
                done.append(f"run {run.run_id[:8]} of `{run.job}` is marked failed")
    return done


@contextmanager
def _lock_home(home: Home) -> Iterator[None]:
    """Lock out `almanac run` and `almanac ui`, which have the databases open."""
    with ExitStack() as held:
        try:
            held.enter_context(home.ui_lock())
            held.enter_context(Home(home.root, wait_s=_WAIT_S).run_lock())
        except LockHeld as error:
            raise LockHeld(f"{error} Stop it first.") from error
        yield


def _repair_database(damage: Damage) -> str:
    """Give the user access to a database if only that is missing, else set it aside."""
    with suppress(OSError):
        if damage.path.is_file() and damage.is_unreadable:
            damage.path.chmod(damage.path.stat().st_mode | stat.S_IRUSR | stat.S_IWUSR)
            return f"{damage.path} is now readable and writable"
    aside = set_aside(damage, utc_now())
    return f"{damage.path.name} ({damage.what}) was renamed to {aside.name}, and a new one was made"


LOOK_UPS_MAX: Final = 20
"""More coins are not looked up: each look-up counts against the quota."""
KNOWN: Final = frozenset({"listed", "found"})
"""The statuses of watched coins that need no attention."""
_MEANINGS: Final = {
    "unknown": "no coin has the slug {slugs}: correct ALMANAC_COINS",
    "not_covered": "the plan {plan} does not cover {slugs}: it shows none of their events",
    "untracked": "{slugs} are not tracked: no new events are added for them",
    "not_asked": "{slugs} are not in a published list and were not looked up",
}


def look_up_coins(
    slugs: Sequence[str], client: "CatalogClient", warehouse: Path
) -> dict[str, list[str]]:
    """Return the watched coins by status: a key of `_MEANINGS`, or of `KNOWN`.

    Raises:
        CatalogError: a look-up failed.
    """
    listed: set[str] = set()
    if warehouse.exists():
        with connected(warehouse) as connection:
            rows = connection.execute(_SQL["list_tracked_coins"], {"slugs": list(slugs)})
            listed = {slug for (slug,) in rows.fetchall()}
    found: dict[str, list[str]] = {}
    others = [slug for slug in slugs if slug not in listed]
    for slug in slugs:
        status = "listed"
        if slug in others[:LOOK_UPS_MAX]:
            status = client.coin(slug)
        elif slug in others:
            status = "not_asked"
        found.setdefault(status, []).append(slug)
    return found


def describe_coins(watched: Mapping[str, Sequence[str]], plan: str) -> str:
    """Return what a person should know of the watched coins, in one line."""
    texts = [
        text.format(slugs=", ".join(watched[status]), plan=plan)
        for status, text in _MEANINGS.items()
        if status in watched
    ]
    return "; ".join(texts) or f"{sum(map(len, watched.values()))} coins, all known to the service"
