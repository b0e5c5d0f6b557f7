"""A wrong body, its expected outcome, and the proper body in its place.

Belongs here: the form of a case, and how rows are counted without our readers. Does not: the
bodies (wrong_exports, wrong_answers).
"""

import csv
import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tests.hostile.good_days import Good
from warehouse.landing.batches import Feed, Scope

FIELD_MAX = 16 << 20
Status = Literal["merged", "quarantined"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """`proper` has the rows of `bodies` that can be read; None: no row can.

    `whole`: the proper body is a complete batch, else a partial one.
    """

    bodies: tuple[bytes, ...]
    feed: Feed = "export"
    proper: tuple[bytes, ...] | None = None
    whole: bool = True
    claims: bool = True
    """Whether the wrong body claims to be a complete batch."""
    status: Status = "merged"
    rejected: int = 0
    ignored: int = 0
    duplicates: int = 0
    says: str = ""
    """A pattern for `why`, `flagged` and the notes of the batch."""
    http: int = 200
    scope: Scope | None = None
    arrived: int | None = None
    """The rows, if they can't be counted from the bytes by the rules below."""


MakeCase = Callable[[Good, int], Case]
Cases = dict[str, MakeCase]


def arrived(case: Case) -> int:
    """Count the rows of a case with Python's own readers."""
    if case.arrived is not None:
        return case.arrived
    if case.feed == "deliveries":
        return len(case.bodies)
    counts = [_rows_in(body, case.feed) for body in case.bodies]
    return sum(count or 0 for count in counts)


def _rows_in(body: bytes, feed: Feed) -> int | None:
    try:
        value = json.loads(body)
    except ValueError:
        return _records(body) if feed == "export" and not body.startswith(b"<") else None
    rows = value.get("data") if isinstance(value, dict) else value
    return len(rows) if isinstance(rows, list) else None


def _records(body: bytes) -> int:
    limit = csv.field_size_limit(FIELD_MAX)
    try:
        lines = io.StringIO(body.decode("utf-8-sig", "surrogateescape"), newline="")
        return max(0, sum(1 for cells in csv.reader(lines) if cells) - 1)
    finally:
        csv.field_size_limit(limit)
