"""The bucket in `almanac status` and `almanac doctor`."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from warehouse.errors import BucketUnusable, SharedDatabaseError
from warehouse.home import Home

if TYPE_CHECKING:
    from pipeline.health.doctor import RunCheck


@dataclass(frozen=True, slots=True)
class BucketHealth:
    """The bucket as this machine last saw it; `synchronised_at` is None if it never did."""

    address: str
    synchronised_at: datetime | None
    is_lake_behind: bool


def read_bucket_health(home: Home) -> BucketHealth | None:
    """Return the state of the bucket, None without one. Sends no request to it."""
    if home.copy is None:
        return None
    return BucketHealth(
        home.copy.index.bucket.address, home.copy.synchronised_at, home.copy.is_lake_behind
    )


def check_bucket(home: Home, *, fix: bool) -> "Iterator[RunCheck]":
    """Check that each file of the home has its object; `fix` stores missing ones again."""
    from pipeline.health.doctor import RunCheck

    if home.copy is None:
        return
    where, restored = home.copy.index.bucket.address, 0
    try:
        home.copy.index.connect()
        problems = home.copy.problems()
        if fix and problems:
            restored = len(home.copy.restore(problems))
            problems = home.copy.problems()
    except (BucketUnusable, SharedDatabaseError, OSError) as error:
        yield RunCheck("bucket", False, str(error))
        return
    done = f"{restored:,} objects were stored again; " if restored else ""
    if not problems:
        yield RunCheck("bucket", True, f"{where}: {done}each file has its object")
        return
    more = f", and {len(problems) - 1:,} more" if len(problems) > 1 else ""
    hint = "no file here replaces it" if fix else "almanac doctor --fix stores it again"
    yield RunCheck("bucket", False, f"{where}: {done}{problems[0]}{more}: {hint}")
