"""The sensor of landed batches that are not merged yet. It reads only local state.

Landing a batch (by polls, deliveries, backfills, imports) leaves a marker; while a batch with news
has one, `unmerged_batches` requests the merge job. Batches without news are merged with it, or by
the daily pull.
"""

import hashlib
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from typing import Final

import dagster as dg
import msgspec

from assets.layout import Layout
from pipeline.automation.jobs import DAILY, DELIVERIES, MERGE
from pipeline.automation.runs import Decision, SensorState, doubled, run_in_progress
from warehouse.home import Home
from warehouse.news import quiet_batches

EVERY_S: Final = 30
_FIRST_WAIT: Final = timedelta(minutes=1)
_LONGEST_WAIT: Final = timedelta(hours=1)
_QUIET_FOR: Final = timedelta(hours=25)
"""The daily pull merges before; else batches without news are merged before they are warned of."""


class MergeState(SensorState, frozen=True, kw_only=True):
    """The batches for which a merge was requested, the number of requests, and the last time.

    `quiet_since` is when batches without news were first seen to wait, None if none does.
    """

    waiting: str = ""
    attempt: int = 0
    at: datetime | None = None
    quiet_since: datetime | None = None


def decide_merge(
    pending: Sequence[str],
    state: MergeState,
    *,
    now: datetime,
    running: str | None,
    quiet: Collection[str] = (),
) -> Decision:
    """Decide whether to request a merge of pending batches, of which `quiet` bring no news.

    A merge of the same batches is requested again after a wait that doubles, each time with a new
    run key, since Dagster never launches a used one. `running` is the id of a run that merges.
    """
    if not pending:
        reason = f"Nothing to merge. Next check in {EVERY_S} s."
        return Decision(reason, state=MergeState())
    quiet_since = (state.quiet_since or now) if quiet else None
    state = msgspec.structs.replace(state, quiet_since=quiet_since)
    is_quiet = len(quiet) == len(pending)
    if is_quiet and quiet_since is not None and now < quiet_since + _QUIET_FOR:
        bring = "1 batch brings" if len(quiet) == 1 else f"{len(quiet)} batches bring"
        return Decision(
            f"{bring} no news: merged with the next batch that does, or by the daily pull.",
            state=state,
        )
    count = "1 batch waits" if len(pending) == 1 else f"{len(pending)} batches wait"
    if running is not None:
        reason = f"{count}; run {running[:8]} merges. Next check after that run."
        return Decision(reason, state=state)
    # Each poll adds a batch without news, so without others the time names them.
    with_news = sorted(set(pending).difference(quiet)) or [f"without news since {quiet_since}"]
    waiting = hashlib.sha256("/".join(with_news).encode()).hexdigest()[:12]
    attempt = 1
    if waiting == state.waiting and state.at is not None:
        next_attempt_at = state.at + doubled(_FIRST_WAIT, state.attempt - 1, longest=_LONGEST_WAIT)
        if now < next_attempt_at:
            return Decision(
                f"{count}; attempt {state.attempt} failed to merge. The next one is at "
                f"{next_attempt_at:%H:%M:%S} UTC; the page of the run shows the reason.",
                state=state,
            )
        attempt = state.attempt + 1
    return Decision(
        f"{count}; requesting a merge.",
        dg.RunRequest(run_key=f"{waiting}-{attempt}"),
        MergeState(
            waiting=waiting,
            attempt=attempt,
            at=now,
            quiet_since=quiet_since if is_quiet else None,
        ),
    )


def unmerged_batches(
    layout: Layout, home: Home, clock: Callable[[], datetime]
) -> dg.SensorDefinition:
    """Return the sensor that requests the merge and publication of landed batches."""

    @dg.sensor(
        name=layout.name("unmerged_batches"),
        job_name=layout.name(MERGE),
        minimum_interval_seconds=EVERY_S,
        description="Requests a merge while landed batches with news are not merged.",
        default_status=layout.sensor_status("unmerged_batches"),
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        pending = home.landing.pending()
        decision = decide_merge(
            pending,
            MergeState.of_cursor(context.cursor),
            now=clock(),
            running=run_in_progress(context.instance, layout.names(MERGE, DAILY, DELIVERIES)),
            quiet=quiet_batches(home, pending),
        )
        return decision.result(context)

    return sensor
