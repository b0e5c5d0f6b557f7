"""The sensor `health`, and the asset `health`, whose checks show the warnings.

The asset is never materialised: Dagster shows only check results that are newer than the last
materialisation. The sensor also fails the check of each day that a feed was not pulled on.

It starts no run and sends no request to the service. It also notes failed runs for `almanac
status`, which does not import Dagster.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, date, datetime
from typing import Any, Final

import dagster as dg
import msgspec

from almanac.core.errors import WarehouseError
from assets.landed import COMPLETE_DAY, evaluate_day, name_asset
from assets.layout import Layout
from pipeline.automation.run_decisions import SensorState, find_instance
from pipeline.health.facts import FORGOTTEN_AFTER, RUN_NOTE, FailedWork, RunNote, read_facts
from pipeline.health.notices import NotPosted, post_warnings
from pipeline.health.warnings import WARNINGS, find_warnings
from pipeline.instance import owner_tags
from pipeline.settings import Settings
from warehouse.files.documents import put_note
from warehouse.home import Home
from warehouse.landing.batches import Feed

HEALTH: Final = "health"
EVERY_S: Final = 300
_PARTS: Final = ("dagster/partition", "dagster/asset_partition_range_start")
_MISSING: Final = dg.AssetCheckResult(
    check_name=COMPLETE_DAY,
    passed=False,
    severity=dg.AssetCheckSeverity.WARN,
    description="No complete pull of the day was merged.",
)
Clock = Callable[[], datetime]


def health_asset(layout: Layout) -> dg.AssetSpec:
    """Return the asset that the warnings belong to."""
    return dg.AssetSpec(
        layout.key(HEALTH),
        description="The health of the home: each warning of `almanac status` is a check, reported "
        "by the sensor `health`. This asset is never materialised.",
        **layout.attributes(HEALTH, {"python"}),
    )


def health_checks(
    layout: Layout, settings: Settings, home: Home, clock: Clock
) -> dg.AssetChecksDefinition:
    """Return the asset checks that show the warnings of a home, one for each."""
    specs = [
        dg.AssetCheckSpec(kind, asset=layout.key(HEALTH), description=find.__doc__)
        for kind, find in WARNINGS.items()
    ]

    @dg.multi_asset_check(name=layout.name(HEALTH), specs=specs, can_subset=True)
    def check(context: dg.AssetCheckExecutionContext) -> Iterable[dg.AssetCheckResult]:
        found = find_warnings(settings, home, clock())
        for key in context.selected_asset_check_keys:
            if key.name in found:
                yield dg.AssetCheckResult(**_describe(layout, key.name, found[key.name]))

    return check


def _describe(layout: Layout, kind: str, text: str | None) -> dict[str, Any]:
    return {
        "asset_key": layout.key(HEALTH),
        "check_name": kind,
        "passed": text is None,
        "severity": dg.AssetCheckSeverity.WARN,
        "description": text,
    }


class HealthState(SensorState, frozen=True, kw_only=True):
    """The missing days of each feed whose check failed."""

    missing: dict[Feed, list[date]] = msgspec.field(default_factory=dict)


def health_sensor(
    layout: Layout, settings: Settings, home: Home, clock: Clock
) -> dg.SensorDefinition:
    """Return the sensor that reports a check, and posts to ALMANAC_ALERT_URL, when it changes."""

    @dg.sensor(
        name=layout.name(HEALTH),
        minimum_interval_seconds=EVERY_S,
        description="Reports the warnings of almanac status as checks of the asset health, and "
        "posts them to ALMANAC_ALERT_URL, when one begins or ends. Starts no run.",
        default_status=layout.sensor_status(HEALTH),
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        now, instance = clock(), find_instance(context)
        write_run_note(home, layout, instance, now)
        found = find_warnings(settings, home, now)
        reason = f"Warnings: {' '.join(kind for kind in found if found[kind]) or 'none'}."
        if settings.alert_url:
            try:
                posted = post_warnings(settings, home, found, now)
                reason += f" Posted: {' '.join(posted) or 'nothing'}."
            except NotPosted as error:
                reason += f" {error}"
        known = HealthState.from_cursor(context.cursor).missing
        missing = {**known}
        with suppress(WarehouseError):
            missing |= {each.feed: each.missing for each in read_facts(settings, home, now).feeds}
        return dg.SensorResult(
            skip_reason=f"{reason} Next check in {EVERY_S // 60} min.",
            cursor=HealthState(missing=missing).cursor(),
            asset_events=[
                *(
                    dg.AssetCheckEvaluation(**_describe(layout, kind, text))
                    for kind, text in found.items()
                    if not _is_shown(instance, layout, kind, text)
                ),
                *(
                    evaluate_day(instance, layout.key(name_asset(feed)), day, _MISSING)
                    for feed, days in missing.items()
                    for day in days
                    if day not in known.get(feed, ())
                ),
            ],
        )

    return sensor


def _is_shown(instance: dg.DagsterInstance, layout: Layout, kind: str, text: str | None) -> bool:
    """Whether the UI shows a check as it is; not if it is planned, skipped or missing."""
    key = dg.AssetCheckKey(layout.key(HEALTH), kind)
    latest = instance.get_latest_asset_check_evaluation_record(key)
    expected = "SUCCEEDED" if text is None else "FAILED"
    return latest is not None and latest.status.value == expected


def write_run_note(home: Home, layout: Layout, instance: dg.DagsterInstance, now: datetime) -> None:
    """Note the work whose newest run of the last days failed, and when the daemon reported."""
    records = instance.get_run_records(
        dg.RunsFilter(
            statuses=[dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.SUCCESS],
            tags=owner_tags(layout),
            updated_after=now - FORGOTTEN_AFTER,
        ),
        ascending=True,
    )
    newest = {}
    for record in records:
        run, at = record.dagster_run, record.update_timestamp.replace(tzinfo=UTC)
        part = next((run.tags[name] for name in _PARTS if name in run.tags), "")
        newest[run.job_name, part] = run.status, FailedWork(run.job_name, part, run.run_id, at)
    failed = [work for status, work in newest.values() if status is dg.DagsterRunStatus.FAILURE]
    heartbeats = (beat.timestamp for beat in instance.get_daemon_heartbeats().values())
    reported = max(heartbeats, default=None)
    daemon_at = None if reported is None else datetime.fromtimestamp(reported, UTC)
    put_note(home.state_storage, RUN_NOTE, RunNote(now, tuple(failed), daemon_at))
