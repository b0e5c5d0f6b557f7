"""Imports of archived exports, each landed at its own time once a merge could read it.

The rows are marked as attested, since the user states the times.
"""

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from msgspec import UNSET

from almanac.core.errors import InvalidArgument
from almanac.core.files import own_folder
from catalog.contract.plans import day_end, day_start
from warehouse.duckdb_limits import open_spilling
from warehouse.errors import LandingError
from warehouse.home import Home
from warehouse.landing.batches import Manifest, Pull, Scope
from warehouse.landing.landing import Landing
from warehouse.normalise.normalise import NormalisedBatch, judge_export
from warehouse.schema.columns import find_plan

_EXPECTED: Final = (
    "Expected a bulk export: CSV with the columns id, title and date, times such as "
    "2026-03-01T06:00:00Z, in UTF-8 or UTF-16; or a JSON list of events. Nothing was landed; mend "
    "the file, or land it as it is with --force."
)
_NO_COVERAGE: Final = "imported without --from and --to, so the batch makes no event missing"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedExport:
    """A file of the bulk export, its plan, its source, and when its content was true and known.

    `columns` has the field of each column with another name.
    `covers` has the first and last event date of the range for which the file has every event;
    without it, absence means nothing.
    """

    path: Path
    content_at: datetime
    observed_at: datetime
    plan: str
    source: str
    covers: tuple[date, date] | None = None
    columns: Mapping[str, str] = field(default_factory=dict)

    def land(self, landing: Landing, now: datetime) -> Manifest:
        """Land the file as it is; the next merge folds it at its place in history.

        Raises:
            LandingError: no file, or impossible times: known before it was true, or in the future.
        """
        if not self.path.is_file():
            raise LandingError(f"{self.path} is not a file. Nothing was landed.")
        if self.observed_at < self.content_at:
            raise LandingError(
                f"observed at {self.observed_at.isoformat()}, before its content time "
                f"{self.content_at.isoformat()}: it can't have been known before it was true. "
                "Nothing was landed; check --content-at and --observed-at."
            )
        if self.observed_at > now:
            raise LandingError(
                f"observed at {self.observed_at.isoformat()}, which is in the future. Nothing was "
                "landed."
            )
        find_plan(self.plan)
        scope = Scope()
        if self.covers is not None:
            scope = Scope(lower=day_start(day_end(self.covers[0])), upper=day_end(self.covers[1]))
        pull = Pull(
            feed="export",
            scope=scope,
            plan=self.plan,
            source=self.source,
            observed_at=self.observed_at,
            content_at=self.content_at,
            landed_at=now,
            requests=0,
            why_incomplete=None if self.covers is not None else _NO_COVERAGE,
            attested=True,
            export_columns=dict(self.columns) or UNSET,
        )
        return landing.land_file(pull, self.path)


def import_export(
    home: Home, export: ArchivedExport, now: datetime, *, force: bool = False
) -> tuple[Manifest, NormalisedBatch, str | None]:
    """Land a file that a merge reads in full; with `force`, also another.

    Returns it as a merge reads it, and why a part of it is lost or in doubt, or None. It is landed
    apart and read there first, so a refused file changes nothing.

    Raises:
        InvalidArgument: a merge would not read it in full.
        LandingError: as `ArchivedExport.land`.
        WarehouseError: the home has data of another source.
    """
    home.check(export.source)
    with (
        TemporaryDirectory(dir=own_folder()) as folder,
        closing(open_spilling(Path(folder, "spill"), home.limits)) as connection,
    ):
        apart = Landing(Path(folder))
        read, doubt = judge_export(connection, apart, export.land(apart, now))
    if doubt is not None and not force:
        raise InvalidArgument(f"{export.path}: {doubt.rstrip('.')}. {_EXPECTED}")
    home.claim(export.source)
    return export.land(home.landing, now), read, doubt
