"""The spent quota of a key, for the next machine that continues this home.

    state/limits.json   {ledger, machine, at, allowed, used, resets_at, spent}

Each machine counts the requests of a key in a ledger of its own, and a service that reports its
usage corrects it. The note has the month's counts at the end of the last session. The requests of
batches and journal pages after it are added, so a machine that failed in a session counts too.
"""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

import msgspec

from resources.backfill.state import BackfillStates
from resources.limits.allowance import WORKS, Allowance
from resources.limits.ledger import Ledger, boot_id
from warehouse.files.documents import put_note, read_note
from warehouse.files.storage import Storage
from warehouse.home import Home

_FILE: Final = "limits.json"
_DAY: Final = timedelta(days=1)
_SAME_MONTH_S: Final = 86_400


class LimitsNote(msgspec.Struct, frozen=True, kw_only=True):
    """The month's counts of one ledger. `at` is aware UTC, the others as in an Allowance."""

    ledger: str
    machine: str
    at: datetime
    allowed: int
    used: int
    resets_at: int
    spent: tuple[int, int, int]


def note_limits(home: Home, ledger: Ledger, now: datetime) -> None:
    """Write the note, for another machine."""
    state = ledger.peek()
    note = LimitsNote(
        ledger=ledger.path.name,
        machine=_name_machine(ledger),
        at=now,
        allowed=state.allowed,
        used=state.used,
        resets_at=state.resets_at,
        spent=state.spent,
    )
    put_note(Storage(home.state), _FILE, note)


def adopt_limits(home: Home, ledger: Ledger, now: datetime) -> None:
    """Add to this machine's ledger what another machine has spent in this month."""
    note = read_note(Storage(home.state), _FILE, LimitsNote)
    if note is None or note.ledger != ledger.path.name or note.machine == _name_machine(ledger):
        return
    if note.resets_at <= now.timestamp():
        return
    daily, polls, backfill = note.spent
    others, backfilled = _count_since(home, note.at)
    spent = (daily + others, polls, backfill + backfilled)
    assert len(spent) == len(WORKS)
    with ledger.locked() as entry:
        entry.state = _add(entry.state, note, note.used + others + backfilled, spent)


def _add(state: Allowance, note: LimitsNote, used: int, spent: tuple[int, int, int]) -> Allowance:
    """Return the state with at least these counts."""
    if abs(state.resets_at - note.resets_at) > _SAME_MONTH_S:
        if state.resets_at > note.resets_at:
            return state
        return replace(
            state, allowed=note.allowed, used=used, resets_at=note.resets_at, excess=0, spent=spent
        )
    most = tuple(map(max, state.spent, spent))
    return replace(state, used=max(state.used, used), spent=(most[0], most[1], most[2]))


def _count_since(home: Home, at: datetime) -> tuple[int, int]:
    """Return the requests landed since a time: without the open backfills', and theirs.

    Pages of pulls in progress count as one request each.
    """
    landing, found = home.landing, {}
    for day in landing.days(since=(at - _DAY).date()):
        for manifest in landing.readable(landing.batch_ids(day=day))[0]:
            if manifest.landed_at > at and not manifest.attested:
                found[manifest.batch_id] = manifest.requests
    states = BackfillStates(home.state_storage, landing)
    of_backfills = {
        manifest.batch_id for state in states.open(at) for manifest in states.landed(state)
    }
    pages = sum(
        note.received_at > at for pull in landing.journal.open_pulls() for note, _ in pull.pages()
    )
    backfilled = sum(count for batch_id, count in found.items() if batch_id in of_backfills)
    return sum(found.values()) - backfilled + pages, backfilled


def _name_machine(ledger: Ledger) -> str:
    """Return a text that differs for each machine, and after each start of it."""
    return f"{boot_id().hex()}:{ledger.path.stat().st_ino if ledger.path.exists() else 0}"
