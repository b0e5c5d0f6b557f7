"""A few rows of what was landed or published, as a Markdown table for people.

Belongs here: which columns are worth a glance. Estimated dates are never shown as dates: it is
`displayed_date` that is shown.
"""

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from warehouse.batches import Feed, Manifest
from warehouse.errors import LandingError
from warehouse.landing import Landing

ROWS: Final = 5
_WIDTH: Final = 48
_WIRE_COLUMNS: Final[Mapping[Feed, tuple[str, ...]]] = {
    "export": ("id", "title", "displayedDate", "coins"),
    "events": ("id", "title", "displayedDate", "coins"),
    "event": ("id", "title", "displayedDate", "coins"),
    "cancellations": ("id", "cancelledAt"),
    "coins": ("slug", "name", "symbol", "rank", "upcomingCount"),
    "categories": ("id", "name"),
    "deliveries": ("type", "createdAt"),
}


def markdown(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a Markdown table; cells are cut to a glance's width."""
    lines = ["| " + " | ".join(columns) + " |", "|" + " --- |" * len(columns)]
    lines += ["| " + " | ".join(_cell(value) for value in row) + " |" for row in rows]
    return "\n".join(lines)


def of_batch(landing: Landing, manifest: Manifest) -> str:
    """Return the first rows of a batch, read from its beginning alone; empty if it has none."""
    columns = _WIRE_COLUMNS[manifest.feed]
    try:
        if manifest.feed == "export":
            rows = _first_of_csv(next(landing.body(manifest), b""))
        else:
            rows = _first_of_json(next(iter(landing.pages(manifest)))[1])
    except (LandingError, StopIteration, ValueError):
        return ""
    if not rows:
        return ""
    return markdown(columns, ([row.get(name) for name in columns] for row in rows))


def _first_of_csv(chunk: bytes) -> list[dict[str, Any]]:
    # The chunk may end within a character or a row; the first few rows are whole.
    reader = csv.DictReader(io.StringIO(chunk.decode("utf-8", "replace")))
    return [row for row, _ in zip(reader, range(ROWS), strict=False)]


def _first_of_json(page: bytes) -> list[dict[str, Any]]:
    content = json.loads(page)
    rows = content.get("data", content) if isinstance(content, dict) else content
    if isinstance(rows, dict):
        rows = [rows]
    return [row for row in rows[:ROWS] if isinstance(row, dict)]


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, list | tuple):
        value = ", ".join(str(_name(one)) for one in value)
    text = " ".join(str(value).split()).replace("|", "\\|")
    return text if len(text) <= _WIDTH else text[: _WIDTH - 1] + "…"


def _name(value: Any) -> Any:
    return value.get("slug") or value.get("name") if isinstance(value, dict) else value
