"""A few rows of what was landed or published, as a Markdown table for people.

Belongs here: which columns are worth a glance, and making the text of others harmless in Markdown:
no link, picture or HTML of theirs is one on a page of Dagster. Estimated dates are never shown as
dates: it is `displayed_date` that is shown.
"""

import csv
import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from warehouse.batches import Feed, Manifest
from warehouse.errors import LandingError
from warehouse.landing import Landing
from warehouse.plain_text import plain_line

ROWS: Final = 5
_WIDTH: Final = 48
_HARMLESS: Final = re.compile(r"[\w ,.;:'\"%+()/?=…–—’“”$€-]*")
_LINKED: Final = re.compile(r"://|www\.", re.IGNORECASE)
"""Many renderers make a link of it without any mark."""
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
    lines = ["| " + " | ".join(map(_cell, columns)) + " |", "|" + " --- |" * len(columns)]
    lines += ["| " + " | ".join(_cell(value) for value in row) + " |" for row in rows]
    return "\n".join(lines)


def bullets(texts: Iterable[str]) -> str:
    """Return a Markdown list of texts, each on a line of its own."""
    return "\n".join(f"- {harmless(one)}" for one in texts)


def harmless(text: str) -> str:
    """Return a text as Markdown that shows it and nothing else: in doubt as code."""
    text = plain_line(text)
    if _HARMLESS.fullmatch(text) and not _LINKED.search(text):
        return text
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{fence} {text} {fence}" if "`" in text else f"{fence}{text}{fence}"


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
    text = plain_line(str(value))
    text = text if len(text) <= _WIDTH else text[: _WIDTH - 1] + "…"
    return harmless(text).replace("|", "\\|")


def _name(value: Any) -> Any:
    return value.get("slug") or value.get("name") if isinstance(value, dict) else value
