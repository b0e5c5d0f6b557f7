"""The warnings of a home: each a function from the facts to a sentence, None without a cause.

`almanac status`, the asset checks in Dagster's UI, the pages, the report and the alerts show them.
The function's name is the kind, its docstring is true while the warning is off, and
docs/operate.md has a row for it. A warning ends when its cause is gone.
"""

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Final

from almanac.core.errors import WarehouseError
from almanac.core.text import plain_line
from pipeline.health.facts import FORGOTTEN_AFTER, Health, HealthWarning, SuspectBatch, read_facts
from pipeline.settings import Settings
from warehouse.home import Home

LEAST_FREE_BYTES: Final = 2_000_000_000
RECENT: Final = timedelta(days=2)
"""How long a problem that can't be repaired causes a warning; later it is only counted."""
STUCK_AFTER: Final = timedelta(hours=1)
SILENT_AFTER: Final = timedelta(minutes=15)
_OVERDUE: Final = timedelta(days=1)
_ENDS_SOON: Final = timedelta(days=90)
_SHOWN: Final = 3
_ERROR_CHARS: Final = 300
Find = Callable[[Health], str | None]
WARNINGS: Final[dict[str, Find]] = {}
"""All warnings by kind, in the order in which they are shown."""


def _warning(find: Find) -> Find:
    WARNINGS[find.__name__] = find
    return find


def read_health(settings: Settings, home: Home, now: datetime) -> Health:
    """Return the measured state and the warnings of a home. `now` is by the machine's clock.

    Raises:
        WarehouseError: the stamp or the inbox can't be read.
    """
    health = read_facts(settings, home, now)
    found = ((kind, find(health)) for kind, find in WARNINGS.items())
    health.warnings = [HealthWarning(kind, text) for kind, text in found if text]
    return health


def find_warnings(settings: Settings, home: Home, now: datetime) -> dict[str, str | None]:
    """Return the text of each kind of warning, None for those that are off.

    If a home can't be read, the result states only this.
    """
    try:
        found = {each.kind: each.text for each in read_health(settings, home, now).warnings}
    except WarehouseError as error:
        # Not its text: it may name folders of this machine.
        why = f"The home can't be read ({type(error).__name__}): almanac status shows the reason"
        return {"damaged": why}
    return {kind: found.get(kind) for kind in WARNINGS}


@_warning
def stale(health: Health) -> str | None:
    """Each feed was pulled in the last 36 hours, events on each day, and no end is announced."""
    if health.source is None:
        return None
    texts, late = [], [feed for feed in health.feeds if feed.stale_since is not None]
    if health.coverage.since is None and not health.pending:
        texts.append("No complete pull of events yet: almanac run")
    elif late:
        named = ", ".join(f"{feed.feed} ({_last(feed.complete_at)})" for feed in late)
        texts.append(
            f"No complete pull for 36 hours: {named}. almanac run pulls now; see that almanac "
            "daemon or cron runs. After 90 days, cancellations are lost"
        )
    gaps = [
        gap for gap in health.coverage.unseen if gap.last >= (health.service_at - RECENT).date()
    ]
    if gaps:
        texts.append(
            f"No complete pull of events on {gaps[-1]}: events that were announced and removed "
            "then are not known. almanac import adds an archived export"
        )
    if health.ends_at is not None and health.ends_at - _ENDS_SOON < health.service_at:
        texts.append(
            f"The service retires this version of its interface on {health.ends_at:%Y-%m-%d}: look "
            "for a newer version of Almanac"
        )
    return _join(texts)


@_warning
def work(health: Health) -> str | None:
    """Deferred work was resumed within a day, and each failed run was repeated."""
    texts = [
        f"{pull.work} {pull.feed} should have resumed at {_at(pull.resume_at)}: almanac run, or "
        "start almanac daemon"
        for pull in health.deferred
        if pull.resume_at + _OVERDUE < health.service_at
    ]
    runs = () if health.runs is None else health.runs.failed
    merged_at = None if health.pending else health.published_at
    for run in sorted(runs, key=lambda run: run.at, reverse=True):
        # A failed merge may have been done otherwise, as by `almanac merge`.
        is_done = run.job.endswith("merge") and merged_at is not None and merged_at > run.at
        if health.at - run.at <= FORGOTTEN_AFTER and not is_done:
            command = "merge" if run.job.endswith(("merge", "deliveries")) else "run"
            texts.append(
                f"Run {run.run_id[:8]} of {run.job}{run.part and f' of {run.part}'} failed at "
                f"{_at(run.at)}: almanac {command}, or re-execute it in almanac ui, which shows why"
            )
    return _join(texts)


@_warning
def batches(health: Health) -> str | None:
    """Every batch is merged within an hour, complete, dated, and not in quarantine."""
    texts, since = [], health.waiting_since
    if since is not None and health.at - since > STUCK_AFTER:
        texts.append(
            f"{_count(health.pending, 'batch waits', 'batches wait')} to be merged since "
            f"{_at(since)}: almanac merge merges, or shows the reason"
        )
    for problem, what, advice in (
        ("incomplete", "incomplete or flagged", "almanac run, or repeat the backfill"),
        ("quarantined", "in quarantine", "almanac batches list --status quarantined --days 100"),
        ("undated", "without a plausible Date", "almanac doctor checks the clock"),
    ):
        found = _list_problems(health, problem, all_days=problem == "quarantined")
        if found:
            texts.append(
                f"{_count(len(found), 'batch', 'batches')} {what}, the newest "
                f"{found[-1].batch_id}{_in_brackets(found[-1].why)}: {advice}"
            )
    return _join(texts)


@_warning
def rejected(health: Health) -> str | None:
    """Every row of the last two days could be read."""
    rows = sum(batch.rows for batch in _list_problems(health, "rejected"))
    text = f"{_count(rows, 'row', 'rows')} of the last {RECENT.days} days could not be read"
    return f'{text}: almanac sql "SELECT * FROM rejects"' if rows else None


@_warning
def quota(health: Health) -> str | None:
    """The monthly quota lasts until its reset."""
    month = health.quota
    if month is None or not month.runs_out:
        return None
    pace = f"at {month.pace_per_day:,.0f} a day"
    text = f"will run out: {month.projected:,} by {_at(month.reset_at)}, {pace}"
    if month.remaining == 0:
        text = f"is used up until {_at(month.reset_at)}"
    return f"The monthly quota of {month.quota:,} {text}: almanac budget"


@_warning
def push(health: Health) -> str | None:
    """Deliveries arrive, are landed within an hour, and can be applied."""
    found, texts = health.push, []
    if found is None:
        return None
    ages = [health.service_at - found.last_at] if found.last_at else []
    ages += [health.at - found.started_at] if found.started_at else []
    age = min(ages, default=FORGOTTEN_AFTER)
    since = "yet" if found.last_at is None else f"since {_at(found.last_at)}"
    if found.is_running and age > found.silent_after:
        texts.append(
            f"almanac receive runs, and no delivery was received {since}: check that the plan has "
            "push, the service has the endpoint enabled, its address leads here, and "
            "ALMANAC_WEBHOOK_SECRETS has its secret"
        )
    is_expected = found.is_expected or age < FORGOTTEN_AFTER
    if not found.is_running and is_expected and age > SILENT_AFTER:
        text = f"almanac receive does not run, and no delivery was received {since}: start it"
        texts.append(text)
    if found.waiting_since is not None and health.service_at - found.waiting_since > STUCK_AFTER:
        texts.append(
            f"{_count(found.waiting, 'delivery waits', 'deliveries wait')} in the inbox since "
            f"{_at(found.waiting_since)}: run almanac merge, which merges them or shows why it "
            "can't"
        )
    if found.rejected:
        texts.append(
            f"{_count(len(found.rejected), 'delivery', 'deliveries')} could not be applied, the "
            f"newest {plain_line(found.rejected[-1])}: almanac inbox list"
        )
    return _join(texts)


@_warning
def daemon(health: Health) -> str | None:
    """Dagster's daemon, which runs schedules and sensors, reports if it was ever started."""
    at = None if health.runs is None else health.runs.daemon_at
    if at is None or not SILENT_AFTER < health.at - at <= FORGOTTEN_AFTER:
        return None
    return (
        f"Dagster's daemon last reported at {_at(at)}: no schedule, sensor or backfill runs "
        "without it. Start almanac daemon or almanac ui"
    )


@_warning
def disk(health: Health) -> str | None:
    """At least 2 GB of the disk are free."""
    free = health.free_bytes
    if free is None or free >= LEAST_FREE_BYTES:
        return None
    return f"The disk has {free / 1e9:.1f} GB free: free space on it"


@_warning
def damaged(health: Health) -> str | None:
    """Landing, the published file and its Parquet files agree."""
    texts = []
    if health.unreadable:
        texts.append(
            f"The published file can't be read ({health.unreadable}): almanac rebuild makes it new"
        )
    if health.damaged:
        texts.append(
            f"{_count(len(health.damaged), 'batch', 'batches')} damaged in landing and left out, "
            f"the newest {health.damaged[-1]}: almanac batches list shows which file to restore "
            "from a backup; then run almanac rebuild"
        )
    # A merge writes these after the publication.
    if health.outdated and health.published_at and health.at - health.published_at > STUCK_AFTER:
        texts.append(
            f"Without the last publication: {_count(len(health.outdated), 'file', 'files')}, the "
            f"first {health.outdated[0]}. almanac merge writes them"
        )
    return _join(texts)


@_warning
def secrets(health: Health) -> str | None:
    """No secret can leak."""
    texts, found = [*health.cautions], _list_problems(health, "key_repeated", all_days=True)
    if found:
        texts.append(
            f"The service repeated the API key in {_count(len(found), 'batch', 'batches')}; it was "
            "removed before anything was stored. Report this to the service, and request a new key"
        )
    return _join(texts)


def _list_problems(health: Health, problem: str, *, all_days: bool = False) -> list[SuspectBatch]:
    """Return the batches with a problem, of the last two days or of all that are read."""
    return [
        batch
        for batch in health.problems
        if batch.problem == problem and (all_days or health.service_at - batch.observed_at < RECENT)
    ]


def _join(texts: Iterable[str]) -> str | None:
    """Return the first three texts as one, None without any."""
    found = [*texts]
    more = [f"And {len(found) - _SHOWN} more"] if len(found) > _SHOWN else []
    return ". ".join([*found[:_SHOWN], *more]) or None


def _count(count: int, noun: str, plural: str) -> str:
    return f"1 {noun}" if count == 1 else f"{count:,} {plural}"


def _in_brackets(error: str) -> str:
    text = " ".join(error.split()).rstrip(".")
    return f" ({text[:_ERROR_CHARS]}{'…' * (len(text) > _ERROR_CHARS)})" if text else ""


def _last(pulled_at: datetime | None) -> str:
    return "never pulled" if pulled_at is None else f"last {_at(pulled_at)}"


def _at(instant: datetime | None) -> str:
    return "an unknown time" if instant is None else f"{instant:%Y-%m-%d %H:%M} UTC"
