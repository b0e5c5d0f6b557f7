"""The health of a home as metrics of Prometheus, read anew at each scrape."""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Final

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from pipeline.health.checks import CHECKS, find_check, read_health
from pipeline.health.facts import Health
from pipeline.settings import Settings
from warehouse.errors import WarehouseError
from warehouse.home import Home

_Sample = tuple[tuple[str, ...], float | None]
_QUOTA: Final = {
    "quota": ("almanac_quota_requests", "Requests of the monthly quota."),
    "remaining": ("almanac_quota_remaining_requests", "Requests left until the reset."),
    "projected": ("almanac_quota_projected_requests", "Requests used at the reset, by the pace."),
}


class HealthCollector(Collector):
    """Collects gauges of a home. A home that can't be read has only `almanac_home` with 0."""

    def __init__(self, settings: Settings, home: Home, clock: Callable[[], datetime]) -> None:
        self._settings = settings
        self._home = home
        self._clock = clock

    def collect(self) -> Iterator[Metric]:
        try:
            health = read_health(self._settings, self._home, self._clock())
        except WarehouseError:
            health = None
        is_read = health is not None and health.source is not None
        yield _gauge("almanac_home", "Whether the home exists and can be read.", [((), is_read)])
        if health is not None:
            yield from _collect_facts(health)


def make_registry(
    settings: Settings, home: Home, clock: Callable[[], datetime]
) -> CollectorRegistry:
    """Return a registry with the metrics of a home alone."""
    registry = CollectorRegistry()
    registry.register(HealthCollector(settings, home, clock))
    return registry


def _collect_facts(health: Health) -> Iterator[Metric]:
    counts = {check.kind: 0 for check in CHECKS}
    for warning in health.warnings:
        counts[find_check(warning.kind).kind] += 1
    yield _gauge(
        "almanac_check_warnings",
        "Warnings of each check.",
        (((check.kind, check.topic), counts[check.kind]) for check in CHECKS),
        ("check", "topic"),
    )
    yield _gauge(
        "almanac_feed_age_seconds",
        "Seconds since the last pull of a feed.",
        (((feed.feed,), feed.age_s) for feed in health.feeds),
        ("feed",),
    )
    yield _gauge("almanac_batches_to_merge", "Landed batches to merge.", [((), health.pending)])
    published = health.published_at
    yield _gauge(
        "almanac_published_timestamp_seconds",
        "When the published file was made, as Unix time.",
        [((), None if published is None else published.timestamp())],
    )
    for name, (metric, meaning) in _QUOTA.items():
        yield _gauge(metric, meaning, [((), getattr(health.quota, name, None))])
    yield _gauge("almanac_free_bytes", "Free bytes of the disk.", [((), health.free_bytes)])


def _gauge(
    name: str, meaning: str, samples: Iterable[_Sample], labels: tuple[str, ...] = ()
) -> Metric:
    """Return a gauge; values that are not known have no sample."""
    gauge = GaugeMetricFamily(name, meaning, labels=labels)
    for values, value in samples:
        if value is not None:
            gauge.add_metric(values, value)
    return gauge
