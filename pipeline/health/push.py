"""What is received by push, and the warnings `push_silent`, `push_missed`, `dead_letters`, `inbox`.

Read from the inbox, and, for what push did not bring, from the published file. Receipts are by the
service's clock; landing and the start of the receiver are by the machine's. No request is sent.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final

import duckdb

from almanac.forms import plain_line
from catalog.contract.constants import WEBHOOK_MATERIAL
from catalog.contract.plans import PLANS
from pipeline.health.records import Health, MissedChange, PushHealth, Warned
from pipeline.health.waiting import STUCK_AFTER
from pipeline.settings import Settings
from resources.inbox.deliveries import waiting_deliveries
from resources.inbox.inbox_file import InboxReader, RefusalCount, inbox_path, lock_path
from resources.inbox.progress import settled_letters
from warehouse.errors import InboxUnusable, WarehouseError
from warehouse.files.locks import holder, is_held
from warehouse.home import Home
from warehouse.queries import connected
from warehouse.sql import Statements

STOPPED_AFTER: Final = timedelta(minutes=15)
"""A receiver that is started again is back sooner."""
GIVEN_UP_AFTER: Final = timedelta(days=7)
"""Without secrets in the settings, nobody expects push so long after the last delivery."""
REFUSED_AFTER: Final = timedelta(hours=1)
"""Deliveries are refused one after the other if the secret is wrong; single ones mean nothing."""
GRACE: Final = timedelta(hours=1)
"""By then the first three retries were sent."""
MISSED_FOR: Final = timedelta(days=4)
"""The last retry is sent after a little more than three days."""
_MARGIN: Final = timedelta(minutes=5)
"""By how much the clocks of a change and of its receipt may differ."""
_READ_MAX: Final = 1_000
_SHOWN: Final = 5
_SIGNED: Final = {
    "mismatch": "the secret is probably wrong: compare ALMANAC_WEBHOOK_SECRETS with the endpoint's",
    "stale": "its clock or this machine's is wrong: almanac doctor",
    "not_allowed": "its form is not in ALMANAC_SIGNATURE_FORMS",
    "malformed": "see ALMANAC_SIGNATURE_HEADER and ALMANAC_SIGNATURE_FORMS",
    "several": "something in front of the receiver may add the header",
}
"""Why a request with a signature was refused, and what to check."""
_OTHERS: Final = {
    "missing": "it has no header ALMANAC_SIGNATURE_HEADER",
    "not found": "it was sent to another path than ALMANAC_RECEIVE_PATH",
}
"""Why requests are refused that anybody may send, so that alone they mean nothing."""
_SQL: Final = Statements(__package__)


def push_of(
    settings: Settings,
    home: Home,
    now: datetime,
    shown: Callable[[str], str],
) -> PushHealth | None:
    """Return what is received by push, None if it was never set up nor received.

    `now` is by the service's clock; `shown` returns the text of an error as it may leave this
    machine.
    """
    lock, reader = lock_path(home), InboxReader(home)
    is_running, started = is_held(lock), holder(lock)
    if not (settings.push or is_running or inbox_path(home).exists()):
        return None
    push = PushHealth(
        has_secrets=settings.push,
        is_running=is_running,
        started_at=None if started is None else started.since,
        silent_after_s=timedelta(hours=settings.push_silence_h).total_seconds(),
    )
    try:
        waiting = waiting_deliveries(home)
        settled = settled_letters(home)
        in_trouble = reader.in_trouble(_READ_MAX)
        letters = [letter for letter in in_trouble if letter.seq not in settled]
        push.last_at, push.waiting = waiting.last_at, waiting.count
        if waiting.count:
            push.waiting_since = reader.first_receipt(after=waiting.progress.landed_to)
        push.failures, push.failed_at = waiting.progress.failures, waiting.progress.failed_at
        push.failure = shown(waiting.progress.failure or "")
        push.dead_letters = [letter.delivery_id for letter in letters]
        push.dead_since = min((letter.received_at for letter in letters), default=None)
        push.refused = reader.refusals()
        push.missed = _missed(home, reader, push, now)
    except InboxUnusable as error:
        push.unusable = shown(str(error))
    return push


def _missed(home: Home, reader: InboxReader, push: PushHealth, now: datetime) -> list[MissedChange]:
    """Return the changes of the last days that push should have brought and a pull showed first.

    Only those since push is received without a long pause: at other times nobody expects it. A
    delivery that arrives late ends its part.
    """
    limit = timedelta(seconds=push.silent_after_s)
    if push.last_at is None or now - push.last_at > limit or not home.warehouse.exists():
        return []
    since = now - MISSED_FOR
    began = reader.received_since(since, gap=limit)
    found: list[MissedChange] = []
    # A file that can't be read has the warning `unpublished`.
    with suppress(duckdb.Error, WarehouseError, OSError), connected(home.warehouse) as connection:
        values = {
            "since": since,
            "until": now - GRACE,
            "began": began,
            "material": list(WEBHOOK_MATERIAL),
            "limit": _READ_MAX,
        }
        rows = connection.execute(_SQL["list_pulled_changes"], values).fetchall()
        found = [MissedChange(event_id, tuple(kinds), *rest) for event_id, kinds, *rest in rows]
    received = reader.last_receipts({change.event_id for change in found})
    return [
        change
        for change in found
        if (at := received.get(change.event_id)) is None or at < change.changed_at - _MARGIN
    ]


def push_warnings(health: Health, now: datetime, machine_now: datetime) -> Iterator[Warned]:
    """Yield the warnings. `now` is by the service's clock, `machine_now` by the machine's."""
    push = health.push
    if push is None:
        return
    if push.unusable:
        yield Warned("inbox", push.unusable.rstrip("."))
        return
    silent = _silent(push, health.plan, now, machine_now)
    if silent is not None:
        yield silent
    yield from _missed_warning(push)
    yield from _letters(push)
    yield from _landing(push, now)


def _silent(
    push: PushHealth, plan: str | None, now: datetime, machine_now: datetime
) -> Warned | None:
    if not push.is_running:
        return _stopped(push, now, machine_now)
    last, limit = push.last_at, timedelta(seconds=push.silent_after_s)
    is_silent = now - last > limit if last else _is_older(push.started_at, limit, machine_now)
    refused = _refused_since(push, now, is_silent=is_silent)
    if refused is not None:
        advice = {**_SIGNED, **_OTHERS}.get(refused.reason, "see the log of the receiver")
        return Warned(
            "push_silent",
            f"almanac receive refuses what is sent: {refused.reason}, "
            f"{_count(refused.requests, 'request', 'requests')} in all, the last at "
            f"{_at(refused.last_at)}, and none was accepted {_since(last)}; {advice}",
            last,
        )
    if not is_silent:
        return None
    known = PLANS.get(plan or "")
    without = "" if known is None or known.webhooks else f"; the plan {known.name} has no push"
    return Warned(
        "push_silent",
        f"almanac receive runs, and no delivery was received {_since(last)}{without}: see that the "
        "service has the endpoint enabled, and that its address leads to this machine. Meanwhile "
        "polls find the changes",
        last or push.started_at,
    )


def _stopped(push: PushHealth, now: datetime, machine_now: datetime) -> Warned | None:
    """Return the warning of a receiver that should run and does not."""
    if not push.has_secrets and (push.last_at is None or now - push.last_at > GIVEN_UP_AFTER):
        return None
    was_just_here = (
        push.last_at is not None and now - push.last_at <= STOPPED_AFTER
    ) or not _is_older(push.started_at, STOPPED_AFTER, machine_now, unknown=True)
    if was_just_here:
        return None
    return Warned(
        "push_silent",
        f"almanac receive does not run, and no delivery was received {_since(push.last_at)}: start "
        "it. A service sends again for some days what it could not deliver; polls find the rest",
        push.last_at,
    )


def _is_older(
    at: datetime | None, than: timedelta, now: datetime, *, unknown: bool = False
) -> bool:
    return unknown if at is None else now - at > than


def _refused_since(push: PushHealth, now: datetime, *, is_silent: bool) -> RefusalCount | None:
    """Return the newest refusals, if nothing was accepted since and they tell of a sender."""
    last = push.last_at
    if last is not None and now - last <= REFUSED_AFTER:
        return None
    recent = timedelta(seconds=push.silent_after_s)
    found = [
        refused
        for refused in push.refused
        if (refused.reason in _SIGNED or (is_silent and refused.reason in _OTHERS))
        and (last is None or refused.last_at > last)
        and now - refused.last_at <= recent
    ]
    signed = [refused for refused in found if refused.reason in _SIGNED]
    return max(signed or found, key=lambda refused: refused.last_at, default=None)


def _missed_warning(push: PushHealth) -> Iterator[Warned]:
    if not push.missed:
        return
    named = ", ".join(
        f"{plain_line(change.event_id)} ({', '.join(change.change_kinds)}, "
        f"{_at(change.changed_at)})"
        for change in push.missed[:_SHOWN]
    )
    more = len(push.missed) - _SHOWN
    yield Warned(
        "push_missed",
        f"{_count(len(push.missed), 'change was', 'changes were')} found by a pull in the last "
        f"{MISSED_FOR.days} days and not brought by push: {named}"
        f"{f' and {more} more' if more > 0 else ''}. The warehouse has them. See that the endpoint "
        "gets created, updated and cancelled events, and that the receiver was not down for long",
        min(change.known_at for change in push.missed),
    )


def _letters(push: PushHealth) -> Iterator[Warned]:
    if push.dead_letters:
        yield Warned(
            "dead_letters",
            f"{_count(len(push.dead_letters), 'delivery', 'deliveries')} in the inbox can't be "
            f"applied; the newest is {plain_line(push.dead_letters[0])}: almanac inbox list --dead",
            push.dead_since,
        )


def _landing(push: PushHealth, now: datetime) -> Iterator[Warned]:
    wait = _count(push.waiting, "delivery waits", "deliveries wait")
    if push.failures:
        times = f"{push.failures} times, the last" if push.failures > 1 else "once,"
        yield Warned(
            "inbox",
            f"{wait} in the inbox; landing failed {times} at {_at(push.failed_at)} "
            f"({push.failure.rstrip('.')}). It is tried again by itself; almanac merge shows why "
            "not",
            push.waiting_since,
        )
    elif push.waiting_since is not None and now - push.waiting_since > STUCK_AFTER:
        yield Warned(
            "inbox",
            f"{wait} in the inbox since {_at(push.waiting_since)}: almanac merge lands and merges "
            "what waits; see that almanac daemon runs, or start almanac receive --merge",
            push.waiting_since,
        )


def _since(last: datetime | None) -> str:
    return "yet" if last is None else f"since {_at(last)}"


def _count(count: int, noun: str, plural: str) -> str:
    return f"1 {noun}" if count == 1 else f"{count:,} {plural}"


def _at(instant: datetime | None) -> str:
    return "an unknown time" if instant is None else f"{instant:%Y-%m-%d %H:%M} UTC"
