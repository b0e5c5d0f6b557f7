"""What of a home's health a person should act on, by stable kinds:

    stale:<feed>   cancellations   quota   rejected   partial   flagged   quarantined   damaged
    deferred   coverage   disk   deprecated   key   exposed   clock   runs   records

Pure: health goes in, warnings come out.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, time, timedelta
from typing import Final

from pipeline.freshness import FeedHealth
from pipeline.health_record import Health, Problems, Warned

RECENT: Final = timedelta(days=2)
"""What can't be put right any more is warned of for so long, and then only told."""
CANCELLATIONS_UNSEEN: Final = timedelta(days=30)
OVERDUE: Final = timedelta(days=1)
"""Work goes on by itself once it may; so much later something is in its way."""
ENDS_SOON: Final = timedelta(days=90)
"""Versions go on for a year after they are deprecated: until then it is told, not warned of."""
LEAST_FREE_BYTES: Final = 2_000_000_000


def warnings_of(health: Health, now: datetime) -> list[Warned]:
    """Return the warnings, one of a kind; none where there is no home."""
    if health.source is None:
        return []
    return [
        *_stale(health),
        *_cancellations(health, now),
        *_quota(health),
        *_rows(health),
        *_deferred(health, now),
        *_coverage(health, now),
        *_disk(health),
        *_deprecated(health, now),
        *_secrets(health),
        *_clock(health),
        *health.run_troubles,
    ]


def _stale(health: Health) -> Iterator[Warned]:
    looks = [one.complete_at for one in health.feeds if one.feed in ("export", "events")]
    first = health.coverage.since
    since = "yet" if first is None else f"since {first}"
    if not any(looks):
        yield Warned("stale:events", f"No complete look at events {since}: almanac run")
    for one in health.feeds:
        if one.stale_since is not None and (any(looks) or one.feed != "events"):
            last = _last_look(one, since)
            text = f"{one.feed}: {last}, and is looked at every day: almanac run"
            yield Warned(f"stale:{one.feed}", text, one.stale_since)


def _last_look(one: FeedHealth, since: str) -> str:
    if one.complete_at is None:
        return f"had no complete look {since}"
    return f"was last looked at {one.complete_at:%Y-%m-%d %H:%M} UTC"


def _cancellations(health: Health, now: datetime) -> Iterator[Warned]:
    last = next((one.complete_at for one in health.feeds if one.feed == "cancellations"), None)
    if last is None and health.coverage.since is not None:
        last = datetime.combine(health.coverage.since, time(tzinfo=UTC))
    if last is not None and now - last > CANCELLATIONS_UNSEEN:
        yield Warned(
            "cancellations",
            f"Cancellations were not looked at for {(now - last).days} days; after 90 some are "
            "lost: almanac run",
            last + CANCELLATIONS_UNSEEN,
        )


def _quota(health: Health) -> Iterator[Warned]:
    quota = health.quota
    if quota is None or not quota.runs_out or quota.reset_at is None:
        return
    until = f"{quota.reset_at:%Y-%m-%d %H:%M} UTC"
    if quota.remaining == 0:
        text = f"The month's quota of {quota.quota:,} is used up until {until}"
    else:
        text = (
            f"The month's quota of {quota.quota:,} will run out: {quota.projected:,} by {until}, "
            f"at {quota.pace_per_day:,.0f} a day"
        )
    yield Warned("quota", f"{text}: almanac budget")


def _rows(health: Health) -> Iterator[Warned]:
    lately = health.rejected_lately
    if lately.rows:
        text = (
            f"{lately.rows:,} rows of {len(lately.batches)} batches of the last "
            f'{RECENT.days} days were rejected: almanac sql "SELECT * FROM rejects"'
        )
        yield Warned("rejected", text, lately.since)
    for kind, problems, what in (
        ("partial", health.partial_lately, "came only in part"),
        ("flagged", health.flagged_lately, "looked incomplete"),
    ):
        if problems.batches:
            why = " ".join(problems.why.split()).rstrip(".")
            text = (
                f"{_batches(problems)} of the last {RECENT.days} days {what}, and no whole pull "
                f"came after; the newest is {problems.batches[-1]}: {why}. Pull again: almanac "
                "run, or the same backfill"
            )
            yield Warned(kind, text, problems.since)
    if health.quarantined:
        text = f"{len(health.quarantined)} batches are quarantined: almanac batches list"
        yield Warned("quarantined", text, health.quarantined_since)
    if health.damaged:
        count = len(health.damaged)
        text = (
            f"{count} batch{' is' if count == 1 else 'es are'} damaged in landing and left out; "
            f"the newest is {health.damaged[-1]}: almanac batches list says which file to restore "
            "from a copy, then almanac replay"
        )
        yield Warned("damaged", text)


def _batches(problems: Problems) -> str:
    count = len(problems.batches)
    return "1 batch" if count == 1 else f"{count} batches"


def _deferred(health: Health, now: datetime) -> Iterator[Warned]:
    due = [
        (one.resume_at + OVERDUE, one)
        for one in health.put_off
        if one.resume_at is not None and one.resume_at + OVERDUE < now
    ]
    if due:
        since, first = min(due, key=lambda one: one[0])
        more = f" and {len(due) - 1} more" if len(due) > 1 else ""
        text = (
            f"{first.work} {first.what}{more}: was to go on at {first.resume_at:%Y-%m-%d %H:%M} "
            "UTC, and did not: almanac run, or almanac ui for the daemon"
        )
        yield Warned("deferred", text, since)


def _coverage(health: Health, now: datetime) -> Iterator[Warned]:
    lately = (now - RECENT).date()
    gaps = [gap for gap in health.coverage.unseen if gap.last >= lately]
    if gaps:
        text = (
            f"No complete look at events on {gaps[-1]}: what was announced and dropped then is not "
            f"known (told for {RECENT.days} days). almanac import takes an archived export"
        )
        yield Warned("coverage", text, datetime.combine(gaps[-1].first, time(tzinfo=UTC)))


def _disk(health: Health) -> Iterator[Warned]:
    if health.free_bytes < LEAST_FREE_BYTES:
        text = f"The disk has {health.free_bytes / 1e9:.1f} GB left: almanac prune"
        yield Warned("disk", text)


def _deprecated(health: Health, now: datetime) -> Iterator[Warned]:
    said = health.deprecated
    if said is not None and said.ends_at is not None and said.ends_at - ENDS_SOON < now:
        text = (
            f"The service ends this version of its interface on {said.ends_at:%Y-%m-%d}: look for "
            "a newer Almanac"
        )
        yield Warned("deprecated", text, said.since)


def _secrets(health: Health) -> Iterator[Warned]:
    repeated = health.key_repeated
    if repeated.batches:
        text = (
            f"The service repeated the API key in {_batches(repeated)}; it was taken out before "
            "anything was kept. Tell the service, and ask it for another key"
        )
        yield Warned("key", text, repeated.since)
    if health.cautions:
        yield Warned("exposed", "; ".join(health.cautions))


def _clock(health: Health) -> Iterator[Warned]:
    undated = health.undated_lately
    if undated.batches:
        text = (
            f"{_batches(undated)} of the last {RECENT.days} days had no Date of the service that "
            f"could be believed; the newest is {undated.batches[-1]}: {undated.why}. Check this "
            "machine's clock: almanac doctor"
        )
        yield Warned("clock", text, undated.since)
