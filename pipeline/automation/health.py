"""The sensors `health` and `alerts`, and the asset checks that show warnings.

They start no run and send no request to the service. `health` also writes the note of failed runs
that `almanac status` reads.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime
from typing import Any, Final

import dagster as dg
import msgspec

from assets.layout import Layout
from assets.metadata import bullets
from pipeline.automation.run_decisions import (
    find_instance,
)
from pipeline.health.checks import CHECKS, TOPICS, find_check, find_warnings
from pipeline.health.facts import HealthWarning
from pipeline.health.notices import post_warnings
from pipeline.health.runs import write_run_note
from pipeline.settings import Settings
from warehouse.home import Home
from warehouse.schema.tables import EVENTS

HEALTH: Final = "health"
EVERY_S: Final = 300
_NEXT: Final = f"Next check in {EVERY_S // 60} min."
Clock = Callable[[], datetime]


def health_checks(
    layout: Layout, settings: Settings, home: Home, clock: Clock
) -> dg.AssetChecksDefinition:
    """Return the asset checks that show the warnings of a home, one for each topic."""
    specs = [
        dg.AssetCheckSpec(
            topic,
            asset=layout.key(EVENTS.name),
            description=" ".join(check.meaning for check in CHECKS if check.topic == topic),
        )
        for topic in TOPICS
    ]

    @dg.multi_asset_check(name=layout.name(HEALTH), specs=specs, can_subset=True)
    def check(context: dg.AssetCheckExecutionContext) -> Iterable[dg.AssetCheckResult]:
        found = find_warnings(settings, home, clock()).warnings
        for key in sorted(context.selected_asset_check_keys):
            yield dg.AssetCheckResult(**_describe(layout, key.name, found))

    return check


def _describe(layout: Layout, topic: str, warnings: Sequence[HealthWarning]) -> dict[str, Any]:
    """Return the content of the result of a check."""
    found = [warning for warning in warnings if find_check(warning.kind).topic == topic]
    is_error = any(find_check(warning.kind).is_error for warning in found)
    texts = [f"{warning.kind}: {warning.text}" for warning in found]
    return {
        "asset_key": layout.key(EVENTS.name),
        "check_name": topic,
        "passed": not found,
        "severity": dg.AssetCheckSeverity.ERROR if is_error else dg.AssetCheckSeverity.WARN,
        "metadata": {
            "warnings": len(texts),
            **({"what to do": dg.MetadataValue.md(bullets(texts))} if texts else {}),
        },
    }


def health_sensor(
    layout: Layout,
    settings: Settings,
    home: Home,
    clock: Clock,
    automation: Collection[str],
) -> dg.SensorDefinition:
    """Return the sensor that reports a check whenever one of its warnings begins or ends.

    `automation` has the names of the other schedules and sensors. The cursor has the kinds of the
    warnings last reported, by topic.
    """

    @dg.sensor(
        name=layout.name(HEALTH),
        minimum_interval_seconds=EVERY_S,
        description="Reports the warnings of almanac status as checks of the asset events, "
        "whenever one begins or ends. Starts no run.",
        default_status=layout.sensor_status(HEALTH),
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        now, instance = clock(), find_instance(context)
        write_run_note(home, settings, instance, now, automation)
        found = find_warnings(settings, home, now).warnings
        kinds: dict[str, list[str]] = {topic: [] for topic in TOPICS}
        for warning in found:
            kinds[find_check(warning.kind).topic].append(warning.kind)
        reported = _read_cursor(context.cursor)
        shown = _find_shown(instance, layout)
        names = " ".join(warning.kind for warning in found)
        return dg.SensorResult(
            skip_reason=f"Warnings: {names or 'none'}. {_NEXT}",
            cursor=msgspec.json.encode(kinds).decode(),
            asset_events=[
                dg.AssetCheckEvaluation(**_describe(layout, topic, found))
                for topic in TOPICS
                if reported.get(topic) != kinds[topic] or shown.get(topic) is not (not kinds[topic])
            ],
        )

    return sensor


def _read_cursor(cursor: str | None) -> dict[str, list[str]]:
    try:
        return msgspec.json.decode(cursor or "{}", type=dict[str, list[str]])
    except msgspec.MsgspecError:
        return {}


def _find_shown(instance: dg.DagsterInstance, layout: Layout) -> dict[str, bool]:
    """Return whether the UI shows each check as passed; a skipped or planned one is left out.

    A run evaluates the checks, too: at a time when its own work still counts as failed, or not at
    all if its step is skipped.
    """
    keys = [dg.AssetCheckKey(layout.key(EVENTS.name), topic) for topic in TOPICS]
    latest = instance.event_log_storage.get_latest_asset_check_execution_by_key(keys)
    results = {"SUCCEEDED": True, "FAILED": False}
    return {
        key.name: results[record.status.value]
        for key, record in latest.items()
        if record.status.value in results
    }


def posting_sensors(
    layout: Layout, settings: Settings, home: Home, clock: Clock
) -> list[dg.SensorDefinition]:
    """Return the sensor of alerts, if it has an address to post to."""

    @dg.sensor(
        name=layout.name("alerts"),
        minimum_interval_seconds=EVERY_S,
        description="Posts warnings of almanac status to ALMANAC_ALERT_URL when they begin and "
        "end, each at most once a day.",
        default_status=layout.sensor_status("alerts"),
    )
    def alerts() -> dg.SkipReason:
        changes = post_warnings(settings, home, clock())
        return dg.SkipReason(f"Posted: {' '.join(changes.kinds) or 'nothing'}. {_NEXT}")

    return [alerts] if settings.alerts else []


def has_batches_to_merge(home: Home) -> bool:
    """Whether a batch waits to be merged."""
    return bool(home.landing.pending())
