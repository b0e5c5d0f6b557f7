"""The fields that an audit judges, and its verdicts."""

from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["instant", "number", "boolean", "text", "word", "list", "entry", "coin", "days"]


@dataclass(frozen=True, slots=True)
class JudgedField:
    """A value that is judged: `source` is the column of events that it is compared with.

    `later` is the verdict if it became known later.
    """

    name: str
    kind: Kind
    later: str
    source: str


def _fields(later: str, **kinds: Kind) -> list[JudgedField]:
    return [JudgedField(name, kind, later, name) for name, kind in kinds.items()]


FIELDS: Final = {
    field.name: field
    for field in (
        *_fields("date_not_moved_yet", date="instant", date_end="instant", date_type="word"),
        *_fields("date_not_moved_yet", is_estimated="boolean", displayed_date="text"),
        *_fields("date_not_moved_yet", displayed_date_full="text", date_doubt="text"),
        *_fields("date_not_moved_yet", date_precision="word"),
        *_fields("date_not_moved_yet", earliest="instant", latest="instant"),
        *_fields("scored_later", impact="number", impact_band="word"),
        *_fields("status_later", status="word", cancelled_at="instant"),
        *_fields("edited_later", title="text", slug="text", description="text"),
        *_fields("edited_later", categories="list", coins="list", impact_summary="text"),
        *_fields("edited_later", source_url="text", snapshot_url="text", created_at="instant"),
    )
}
"""By name. A change of `updated_at` or `last_verified_at` alone makes no version, so these are not
judged."""

_OF_ROWS: Final = (
    JudgedField("category", "entry", "edited_later", "categories"),
    JudgedField("days_until", "days", "date_not_moved_yet", "date"),
    JudgedField("known_from", "instant", "edited_later", "known_from"),
)
JUDGED: Final = {**FIELDS, **{field.name: field for field in _OF_ROWS}}
"""By name: the columns of events, and values that follow from them."""

EVENT: Final = "event_id"
"""The field of a finding about the event as a whole."""
NO_EVENT: Final = "no_event"
COIN: Final = "coin"
COIN_FIELD: Final = JudgedField(COIN, "coin", "edited_later", "coins")
"""The coin of a row: whether the event was linked to it at the decision."""


@dataclass(frozen=True, slots=True)
class AuditVerdict:
    """A verdict: its group and its text."""

    name: str
    group: Literal["leak", "unjudged", "warning", "clean"]
    meaning: str


VERDICTS: Final = (
    AuditVerdict("not_announced", "leak", "the event was not known yet"),
    AuditVerdict("date_not_moved_yet", "leak", "the date, or its precision, became known later"),
    AuditVerdict("status_later", "leak", "it was cancelled, withdrawn or restored later"),
    AuditVerdict("scored_later", "leak", "the score was given later"),
    AuditVerdict("edited_later", "leak", "other content was edited later"),
    AuditVerdict(
        "estimated_as_exact", "leak", "only a period or deadline was known, not this date"
    ),
    AuditVerdict("close_to_later", "leak", "close to a value that became known later"),
    AuditVerdict("unreadable", "unjudged", "the row, or the value, can't be read"),
    AuditVerdict("unknown_event", "unjudged", "no such event was ever seen"),
    AuditVerdict("never_known", "unjudged", "this value was known at no time"),
    AuditVerdict(
        "not_watched", "unjudged", "no pull had shown the event yet, but it may have been known"
    ),
    AuditVerdict("unknown_field", "unjudged", "the plan hid this field then"),
    AuditVerdict(
        "unknown_precision",
        "unjudged",
        "it was the date of a period or deadline; a column is_estimated or date_precision tells "
        "whether the row used it as such",
    ),
    AuditVerdict("after_last_pull", "unjudged", "no pull was made after the decision"),
    AuditVerdict("outdated", "warning", "it had been known, and was replaced before the decision"),
    AuditVerdict("close_to_known", "warning", "close to a known value, but not equal to it"),
    AuditVerdict(NO_EVENT, "clean", "the row used no event"),
    AuditVerdict("clean", "clean", "what was known at the decision"),
)
"""The worst first: a row has the worst verdict of its fields."""

SEVERITY: Final = {verdict.name: place for place, verdict in enumerate(VERDICTS)}
"""The place of each verdict; 0 is the worst."""
GROUPS: Final = {verdict.name: verdict.group for verdict in VERDICTS}


def rank_mismatch(verdict: str) -> int:
    """Return how badly an event with this verdict fits a coin and a date.

    The best verdict is a known value, then a value that may have been known, then a value that
    became known later. The worst is an event that never had the values of the row.
    """
    if verdict in ("unreadable", "unknown_event", "never_known"):
        return 4
    return ("clean", "warning", "unjudged", "leak").index(GROUPS[verdict])
