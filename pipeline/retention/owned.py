"""What in an instance belongs to one home: an instance may have runs of other homes and other code.

Belongs here: the rule. Does not: reading or deleting records.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self

import dagster as dg
from dagster._core.storage.event_log.sqlite.sqlite_event_log import SqliteEventLogStorage

from assets.layout import Layout
from pipeline.runs.store import INDEX
from warehouse.home import Home

OWNER_TAG: Final = "almanac/owner"
"""The tag of every run of a job of a home; its value is `Owned.label`."""
_INDEX: Final = "index"
_ASSET_JOB: Final = "__ASSET_JOB"
"""The name of runs that a person starts from the page of an asset; such a job has no tags."""


def label_of(layout: Layout) -> str:
    """Return the label of the runs of a layout. Homes in one instance have different layouts."""
    return "/".join([*layout.key_prefix, layout.name("almanac")])


def owner_tags(layout: Layout) -> dict[str, str]:
    """Return the tags of the jobs of a layout."""
    return {OWNER_TAG: label_of(layout)}


@dataclass(frozen=True, slots=True)
class Owned:
    """What belongs to one home: the label of its runs, and the names of its definitions.

    `home` is None in an instance elsewhere. In the home's own, what has one of its names and no
    label is the home's, too: runs of versions that set no label.
    """

    label: str
    jobs: frozenset[str]
    assets: frozenset[dg.AssetKey]
    instigators: frozenset[str]
    home: Home | None = None

    def in_instance(self, instance: dg.DagsterInstance) -> Self:
        """Return what belongs to the home in an instance, which may be its own or another."""
        storage = instance.event_log_storage
        if self.home is not None and isinstance(storage, SqliteEventLogStorage):
            folder = Path(storage.path_for_shard(_INDEX)).parent
            if folder.resolve() == (self.home.dagster / INDEX).parent.resolve():
                return self
        return replace(self, home=None)

    def has_run(self, run: dg.DagsterRun) -> bool:
        """Return whether a run is the home's."""
        label = run.tags.get(OWNER_TAG)
        if label is not None:
            return label == self.label
        if not run.job_name.startswith(_ASSET_JOB):
            return self.home is not None and run.job_name in self.jobs
        checked = {check.asset_key for check in run.asset_check_selection or ()}
        chosen = {*(run.asset_selection or ()), *checked}
        return bool(chosen) and chosen <= self.assets

    def filters(self) -> list[dg.RunsFilter]:
        """Return the filters that together find all runs of the home, and some others."""
        found = [dg.RunsFilter(tags={OWNER_TAG: self.label}), dg.RunsFilter(job_name=_ASSET_JOB)]
        if self.home is not None:
            found += [dg.RunsFilter(job_name=name) for name in sorted(self.jobs)]
        return found
