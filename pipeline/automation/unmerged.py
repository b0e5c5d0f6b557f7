"""The sensors. They read local state alone, and make no request of the service.

`unmerged_batches`: whatever lands (polls, deliveries, backfills, imports) leaves a marker; as
long as there is one, the merge job is asked for.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import dagster as dg
import msgspec

from pipeline.automation.jobs import DAILY, MERGE, merge_job
from pipeline.automation.runs import doubled, under_way
from warehouse.home import Home

EVERY_S: Final = 30
_FIRST_WAIT: Final = timedelta(minutes=1)
_LONGEST_WAIT: Final = timedelta(hours=1)


class MergeCursor(msgspec.Struct, frozen=True, kw_only=True):
    """What the sensor remembers: for which batches it asked, how often, and when last."""

    waiting: str = ""
    attempt: int = 0
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class MergeDecision:
    """What to do now. `run_key` None is nothing, and `said` tells why and what comes next."""

    asked: MergeCursor
    said: str
    run_key: str | None = None


def decide_merge(
    pending: Sequence[str], asked: MergeCursor, *, now: datetime, under_way: str | None
) -> MergeDecision:
    """Decide whether to ask for a merge of what waits.

    The same batches are asked for again only after a wait that doubles, each time under a new
    key: Dagster never launches a used one. `under_way` is the id of a run that merges.
    """
    if not pending:
        return MergeDecision(
            MergeCursor(), f"Nothing waits to be merged. Looking again in {EVERY_S} s."
        )
    count = "1 batch waits" if len(pending) == 1 else f"{len(pending)} batches wait"
    if under_way is not None:
        return MergeDecision(
            asked, f"{count}; run {under_way[:8]} is to merge. Looking again after it."
        )
    waiting = hashlib.sha256("/".join(sorted(pending)).encode()).hexdigest()[:12]
    attempt = 1
    if waiting == asked.waiting and asked.at is not None:
        again_at = asked.at + doubled(_FIRST_WAIT, asked.attempt - 1, longest=_LONGEST_WAIT)
        if now < again_at:
            return MergeDecision(
                asked,
                f"{count}; attempt {asked.attempt} did not merge. The next one is at "
                f"{again_at:%H:%M:%S} UTC; the run's page says what is wrong.",
            )
        attempt = asked.attempt + 1
    told = MergeCursor(waiting=waiting, attempt=attempt, at=now)
    return MergeDecision(told, f"{count}; asking for a merge.", f"{waiting}-{attempt}")


def unmerged_batches(home: Home, clock: Callable[[], datetime]) -> dg.SensorDefinition:
    """Return the sensor that has landed batches merged and published."""

    @dg.sensor(
        name="unmerged_batches",
        job=merge_job,
        minimum_interval_seconds=EVERY_S,
        description="Asks for a merge while batches are landed and not merged.",
        default_status=dg.DefaultSensorStatus.RUNNING,
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        verdict = decide_merge(
            home.landing.pending(),
            _remembered(context.cursor),
            now=clock(),
            under_way=under_way(context.instance, (MERGE, DAILY)),
        )
        requests = [] if verdict.run_key is None else [dg.RunRequest(run_key=verdict.run_key)]
        return dg.SensorResult(
            run_requests=requests,
            skip_reason=None if requests else verdict.said,
            cursor=msgspec.json.encode(verdict.asked).decode(),
        )

    return sensor


def _remembered(cursor: str | None) -> MergeCursor:
    try:
        return msgspec.json.decode(cursor or "{}", type=MergeCursor)
    except msgspec.MsgspecError:
        return MergeCursor()
