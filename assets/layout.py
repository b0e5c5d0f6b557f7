"""How the definitions of a home fit into a deployment: keys, groups, names, partitions, retries.

A deployment may hold several homes, and definitions of others, so every key and name that Dagster
sees is composed here.
"""

import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from typing import Any, Final

import dagster as dg
from pydantic import Field

from resources.errors import RetryLater
from resources.session import CatalogSession
from warehouse.errors import DISK_ADVICE, is_of_the_disk

EVERYTHING_ON: Final = "all"
NOTHING_ON: Final = "none"
FIRST_DAY: Final = date(2017, 1, 1)
"""The first observed day if the home has no batch: the start of the catalog."""
CATALOG_POOL: Final = "catalog"
"""Pulls of a home run one after the other, since they share one rate."""
INBOX_POOL: Final = "inbox"
"""Deliveries are landed by one run at a time, and never wait for a pull."""
WAREHOUSE_POOL: Final = "warehouse"
"""Merges of a home run one after the other; each holds the merge lock."""
RETRIES: Final = dg.RetryPolicy(
    max_retries=3, delay=5, backoff=dg.Backoff.EXPONENTIAL, jitter=dg.Jitter.PLUS_MINUS
)
"""Three more attempts within a minute or two, in addition to the HTTP client's attempts. A run
notices a cancellation only after a wait, so no wait is longer than 70 s."""


@dataclass(frozen=True)
class Layout:
    """Prefixes of keys, groups and names, and the first and last day that are partitions.

    The key prefix is also in the names that share one namespace in a deployment: jobs, schedules,
    sensors, ops, pools and resources. Dagster counts partitions by the machine's day; `days_ahead`
    is how many whole days the service is ahead of it.
    """

    key_prefix: tuple[str, ...] = ()
    group_prefix: str = ""
    first_day: date = FIRST_DAY
    days_ahead: int = 0
    executor: dg.ExecutorDefinition | None = dg.in_process_executor
    """How the steps of a run are executed; None uses the executor of the deployment."""
    retry_policy: dg.RetryPolicy | None = RETRIES
    """When a step that pulls is retried."""
    owners: tuple[str, ...] = ("team:almanac",)
    automation: Collection[str] = (EVERYTHING_ON,)
    """The schedules and sensors that are on at first, by name without prefix; `all` or `none`."""

    def key(self, asset: str) -> dg.AssetKey:
        """Return the key of an asset."""
        return dg.AssetKey([*self.key_prefix, asset])

    def keys(self, assets: Iterable[str]) -> list[dg.AssetKey]:
        return [self.key(asset) for asset in assets]

    def asset(self, key: dg.AssetKey) -> str:
        """Return the asset's own name of a key. Raises ValueError: it was renamed outside."""
        if key != self.key(name := key.path[-1]):
            own = self.key(name).to_user_string()
            text = f"{key.to_user_string()} is {own} here: to rename it, set key_prefix of "
            raise ValueError(f"{text}AlmanacComponent. Nothing was changed.")
        return name

    def name(self, name: str) -> str:
        """Return the name of a job, schedule, sensor, op, pool or resource."""
        return "_".join([*self.key_prefix, name])

    def names(self, *names: str) -> set[str]:
        return {self.name(name) for name in names}

    def schedule_status(self, name: str) -> dg.DefaultScheduleStatus:
        """Return whether a schedule is on until a person switches it."""
        return dg.DefaultScheduleStatus(self.sensor_status(name).value)

    def sensor_status(self, name: str) -> dg.DefaultSensorStatus:
        """Return whether a sensor is on until a person switches it."""
        is_on = not {EVERYTHING_ON, name}.isdisjoint(self.automation)
        return dg.DefaultSensorStatus("RUNNING" if is_on else "STOPPED")

    def resource(self, context: Any, name: str) -> Any:
        """Return a resource of a run, by its name without the prefix of the deployment."""
        return getattr(context.resources, self.name(name))

    @cached_property
    def observed_days(self) -> dg.DailyPartitionsDefinition:
        """The observed days from the first to the service's today, in UTC."""
        # By default only ended days are partitions, so the offset adds today.
        return dg.DailyPartitionsDefinition(
            self.first_day.isoformat(), end_offset=1 + self.days_ahead
        )

    def attributes(self, group: str, kinds: set[str]) -> Mapping[str, Any]:
        """Return the arguments that the assets of a group share, for `dg.asset` or a spec."""
        return {
            "group_name": self.group_prefix + group,
            "kinds": kinds,
            "owners": self.owners,
            "tags": {"domain": "crypto-events", "layer": group},
        }


def day_asset(
    layout: Layout, name: str, *, group: str, kinds: set[str], pool: str, **given: Any
) -> Callable[[Callable[..., Any]], dg.AssetsDefinition]:
    """Return a decorator for an asset with a partition for each observed day.

    Its function gets `home` and `catalog` by `layout.resource`. A range of days is one run, since a
    refold from a day also folds all days after it. `given` are further arguments of `dg.asset`.
    """
    with without_beta_warnings():
        decorate: Callable[[Callable[..., Any]], dg.AssetsDefinition] = dg.asset(
            key=layout.key(name),
            partitions_def=layout.observed_days,
            backfill_policy=dg.BackfillPolicy.single_run(),
            pool=layout.name(pool),
            required_resource_keys=layout.names("home", "catalog"),
            **layout.attributes(group, kinds),
            **given,
        )
    return decorate


def day_check(
    layout: Layout, asset: str, name: str, description: str, *, blocking: bool = False
) -> dg.AssetCheckSpec:
    """Return a check of an asset with a result for each observed day."""
    with without_beta_warnings():
        return dg.AssetCheckSpec(
            name,
            asset=layout.key(asset),
            description=description,
            blocking=blocking,
            partitions_def=layout.observed_days,
        )


def list_run_days(context: dg.AssetExecutionContext) -> list[date]:
    """Return the observed days of a run, in order."""
    return [date.fromisoformat(key) for key in sorted(context.partition_keys)]


def record_days(
    context: dg.AssetExecutionContext, metadata_of_days: Mapping[date, dict[str, Any]]
) -> None:
    """Record days before the step ends, so that a failure after them does not lose them."""
    for day, metadata in metadata_of_days.items():
        context.log_event(
            dg.AssetMaterialization(context.asset_key, partition=day.isoformat(), metadata=metadata)
        )


def step_failure(error: Exception) -> dg.Failure:
    """Return the failure of a step. It is retried only if the error may end by waiting."""
    text = f"{error}. {DISK_ADVICE}" if is_of_the_disk(error) else str(error)
    return dg.Failure(text, allow_retries=isinstance(error, RetryLater))


def max_requests_field() -> Any:
    """Return the field of a run's config that limits its price."""
    return Field(
        default=0,
        ge=0,
        description="Fail before the first pull if the run would take more requests than this. 0 "
        "allows the share of today in what is left of the month's quota.",
    )


def check_price(
    context: dg.AssetExecutionContext, service: CatalogSession, price: int, max_requests: int
) -> None:
    """Log the price of a run.

    Raises:
        dg.Failure: it is more than the run may send.
    """
    allowed = max_requests or service.day_share
    of = "max_requests" if max_requests else "the share of today in the quota"
    text = f"It takes about {price:,} requests"
    context.log.info(text if allowed is None else f"{text}; {of} allows {allowed:,}")
    if allowed is not None and price > allowed:
        raise dg.Failure(
            f"{text}, and {of} allows {allowed:,}. Nothing was pulled. Set max_requests in the "
            "run's config, or choose less.",
            allow_retries=False,
        )


@contextmanager
def without_beta_warnings() -> Iterator[None]:
    """Hide Dagster's warnings that a parameter is beta or new: users can't act on them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)
        warnings.simplefilter("ignore", dg.PreviewWarning)
        yield
