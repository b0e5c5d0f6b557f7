"""Work that was put off: looks, and backfills that are not at their end."""

from dataclasses import dataclass
from datetime import datetime

from resources.allowance import Work
from resources.deferrals import Deferrals
from resources.sweeps import Sweeps
from warehouse.home import Home
from warehouse.storage import Storage


@dataclass(frozen=True, slots=True)
class PutOff:
    """One piece of work. `resume_at` None is a backfill under way, or one that was broken off."""

    work: Work
    what: str
    since: datetime
    resume_at: datetime | None
    why: str


def put_off(home: Home, now: datetime) -> list[PutOff]:
    """Return what was put off, looks first; notes that can't be read are none."""
    state = Storage(home.state)
    looks = [
        PutOff(one.work, one.feed, one.noted_at, one.resume_at, one.why)
        for one in Deferrals(state).all()
    ]
    backfills = []
    for note in Sweeps(state, home.landing).open(now):
        lower, upper = note.scope.lower, note.scope.upper
        assert lower is not None and upper is not None
        what = f"events of {lower:%Y-%m-%d} to {upper:%Y-%m-%d}"
        backfills.append(PutOff("backfill", what, note.started_at, note.resume_at, note.why))
    return looks + backfills
