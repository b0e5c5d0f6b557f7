"""Names of the files of a lake, relative to its folder.

lake/head.json
lake/event_changes/observed_date=YYYY-MM-DD/changes.parquet
lake/event_absences/observed_date=YYYY-MM-DD/absences.parquet
lake/coin_snapshots/observed_date=YYYY-MM-DD/coins.parquet
lake/rejects/observed_date=YYYY-MM-DD/{batch id}.parquet
lake/checkpoints/YYYY-MM-DD-{fold id}/{seen,content,coins,…}.parquet, state.json
lake/events/event_month=YYYY-MM/events.parquet
lake/events/_sha256.json, _rewriting.json
"""

from contextlib import suppress
from datetime import date
from typing import Final

HEAD: Final = "head.json"
EVENT_CHANGES: Final = "event_changes"
EVENT_ABSENCES: Final = "event_absences"
COIN_SNAPSHOTS: Final = "coin_snapshots"
REJECTS: Final = "rejects"
CHECKPOINTS: Final = "checkpoints"
EVENTS: Final = "events"
FOLDERS: Final = (EVENT_CHANGES, EVENT_ABSENCES, COIN_SNAPSHOTS, REJECTS, CHECKPOINTS, EVENTS)
EVENTS_HASHES: Final = f"{EVENTS}/_sha256.json"
EVENTS_MARKER: Final = f"{EVENTS}/_rewriting.json"
CHECKPOINT_STATE: Final = "state.json"
"""The part of a checkpoint that is not in a table."""
DAY: Final = "observed_date="
_MONTH: Final = "event_month="


def day_folder(kind: str, day: date) -> str:
    """Return the folder of a day of `EVENT_CHANGES` or of the files beside it."""
    return f"{kind}/{folder_of_day(day)}"


def folder_of_day(day: date) -> str:
    return DAY + day.isoformat()


def parse_day(folder: str) -> date | None:
    """Return the day in the name of a folder; None if the name has none."""
    with suppress(ValueError):
        if folder.startswith(DAY):
            return date.fromisoformat(folder.removeprefix(DAY))
    return None


def changes_in(folder: str) -> str:
    """Return the change log file in a folder, which may have any name."""
    return f"{EVENT_CHANGES}/{folder}/changes.parquet"


def changes_name(day: date) -> str:
    return changes_in(folder_of_day(day))


def absences_name(day: date) -> str:
    return f"{day_folder(EVENT_ABSENCES, day)}/absences.parquet"


def coins_name(day: date) -> str:
    return f"{day_folder(COIN_SNAPSHOTS, day)}/coins.parquet"


def rejects_name(day: date, batch_id: str) -> str:
    return f"{day_folder(REJECTS, day)}/{batch_id}.parquet"


def checkpoint_folder(checkpoint: str) -> str:
    return f"{CHECKPOINTS}/{checkpoint}"


def checkpoint_table(checkpoint: str, table: str) -> str:
    return f"{CHECKPOINTS}/{checkpoint}/{table}.parquet"


def checkpoint_state(checkpoint: str) -> str:
    return f"{CHECKPOINTS}/{checkpoint}/{CHECKPOINT_STATE}"


def month_folder(month: str) -> str:
    """Return the folder of an event month, given as YYYY-MM."""
    return f"{EVENTS}/{_MONTH}{month}"


def events_in(folder: str) -> str:
    """Return the file of events in a folder, which may have any name."""
    return f"{EVENTS}/{folder}/events.parquet"


def month_name(month: str) -> str:
    return events_in(f"{_MONTH}{month}")


def parse_month(folder: str) -> str | None:
    """Return the event month in the name of a folder; None if the name has none."""
    return folder.removeprefix(_MONTH) if folder.startswith(_MONTH) else None
