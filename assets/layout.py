"""Where the definitions of a home stand in a deployment: keys, groups, names, first day, executor.

Belongs here: every key and name that Dagster sees, and the partitions by observed day. Does not:
the assets and jobs themselves. A deployment may hold several homes, and definitions of others, so
nothing else composes a key or a name.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from functools import cached_property
from typing import Any, Final

import dagster as dg

FIRST_DAY: Final = date(2017, 1, 1)
"""The first observed day where no home says otherwise: the catalog is not older."""


@dataclass(frozen=True)
class Layout:
    """Prefixes of keys, groups and names, and the observed days that are partitions.

    `name_prefix` is for what shares one namespace in a deployment: jobs, schedules, sensors, ops,
    pools and resources. `not_landed` are past days without a batch, which can never be pulled: they
    are no partitions, and a range of days leaves them out. Dagster counts partitions by the
    machine's day; `days_to_come` are those that have not ended there, its today among them.
    """

    key_prefix: tuple[str, ...] = ()
    group_prefix: str = ""
    name_prefix: str = ""
    first_day: date = FIRST_DAY
    not_landed: tuple[date, ...] = ()
    days_to_come: int = 4
    executor: dg.ExecutorDefinition | None = dg.in_process_executor
    """How the steps of a run are executed; None as the deployment says."""
    is_on: Callable[[str], bool] = lambda name: True
    """Whether a schedule or sensor is on at first, by its name without prefix."""

    def key(self, asset: str) -> dg.AssetKey:
        """Return the key of an asset."""
        return dg.AssetKey([*self.key_prefix, asset])

    def keys(self, assets: Iterable[str]) -> list[dg.AssetKey]:
        return [self.key(asset) for asset in assets]

    def asset(self, key: dg.AssetKey) -> str:
        """Return the asset's own name of a key.

        Raises:
            ValueError: the key is of others, or was renamed outside.
        """
        *prefix, name = key.path
        if tuple(prefix) != self.key_prefix:
            below = "/".join(self.key_prefix) or "the top level"
            raise ValueError(
                f"the asset {key.to_user_string()} is not one of {below}. Nothing was changed. "
                "Keys can't be renamed from outside: set ALMANAC_KEY_PREFIX."
            )
        return name

    def group(self, name: str) -> str:
        """Return the name of an asset group."""
        return self.group_prefix + name

    def name(self, name: str) -> str:
        """Return the name of a job, schedule, sensor, op, pool or resource."""
        return self.name_prefix + name

    def names(self, *names: str) -> set[str]:
        return {self.name(name) for name in names}

    def schedule_status(self, name: str) -> dg.DefaultScheduleStatus:
        """Return whether a schedule is on until a person switches it."""
        statuses = dg.DefaultScheduleStatus
        return statuses.RUNNING if self.is_on(name) else statuses.STOPPED

    def sensor_status(self, name: str) -> dg.DefaultSensorStatus:
        """Return whether a sensor is on until a person switches it."""
        statuses = dg.DefaultSensorStatus
        return statuses.RUNNING if self.is_on(name) else statuses.STOPPED

    def resource(self, context: Any, name: str) -> Any:
        """Return a resource of a run by its own name."""
        return getattr(context.resources, self.name(name))

    @cached_property
    def observed_days(self) -> dg.DailyPartitionsDefinition:
        """The landed days, and those to the service's today.

        By default only ended days are partitions, so the offset adds today. A day that has not
        begun for the service is refused when it is asked for.
        """
        return dg.DailyPartitionsDefinition(
            self.first_day.isoformat(),
            end_offset=self.days_to_come,
            exclusions=[datetime.combine(day, time(), UTC) for day in self.not_landed],
        )
