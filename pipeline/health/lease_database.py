"""The writer lease in `almanac status`, and the checks of its database in `almanac doctor`."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from warehouse.errors import SharedDatabaseError
from warehouse.home import Home

if TYPE_CHECKING:
    from pipeline.health.doctor import RunCheck
    from warehouse.shared.database import SharedDatabase

_STATUS_WAIT_S: Final = 3
"""How long `almanac status` waits for the database."""


@dataclass(frozen=True, slots=True)
class LeaseHealth:
    """The writer lease. `text` is for people; it says why the other fields are unknown."""

    text: str
    epoch: int | None = None
    holder: str | None = None
    taken_at: datetime | None = None
    until: datetime | None = None
    is_held: bool | None = None


def read_lease_health(home: Home) -> LeaseHealth | None:
    """Return the state of the lease, None if the home has no database."""
    if home.database is None:
        return None
    # Imported here: most homes have no database.
    from warehouse.shared.lease import read_lease

    try:
        found = read_lease(home.database, timeout_s=_STATUS_WAIT_S)
    except SharedDatabaseError as error:
        return LeaseHealth(str(error))
    if found is None:
        return LeaseHealth("no writer has used the database yet")
    return LeaseHealth(
        text=str(found),
        epoch=found.epoch,
        holder=found.holder,
        taken_at=found.taken_at,
        until=found.until,
        is_held=found.is_held,
    )


def check_database(home: Home) -> "Iterator[RunCheck]":
    """Check that the database answers, that this user may write there, and its lease."""
    if home.database is not None:
        yield _check_connection(home.database)


def _check_connection(database: "SharedDatabase") -> "RunCheck":
    from pipeline.health.doctor import RunCheck
    from warehouse.shared.lease import find_problems, read_lease

    try:
        problems, lease = find_problems(database), read_lease(database)
        where = database.place
    except SharedDatabaseError as error:
        return RunCheck("writer lease", False, str(error))
    state = "no writer has used it yet" if lease is None else str(lease)
    found = "; ".join((*problems, state))
    return RunCheck("writer lease", not problems, f"{where}: {found}")
