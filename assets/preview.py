"""A few rows of what was landed or published, as a Markdown table for people.

Belongs here: which columns are worth a glance, and making the text of others harmless in Markdown:
no link, picture or HTML of theirs is one on a page of Dagster. Estimated dates are never shown as
dates: it is `displayed_date` that is shown.
"""

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from warehouse.batches import Feed, Manifest
from warehouse.bodies import decoded, pages
from warehouse.cells import raw_text
from warehouse.errors import WarehouseError
from warehouse.landing import Landing
from warehouse.plain_text import plain_line

ROWS: Final = 5
_HEAD_BYTES: Final = 1 << 16
_PAGE_BYTES: Final = 4 << 20
"""A larger page is not read for a glance."""
_WIDTH: Final = 48
_READ: Final = 1_000
_LISTED: Final = 50
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
    """Return the first rows of a batch, read from its beginning alone.

    Empty where nothing can be shown: a preview is of use, and never a reason to fail.
    """
    columns = _WIRE_COLUMNS[manifest.feed]
    try:
        if manifest.feed == "export":
            rows = _first_of_csv(next(landing.body(manifest), b"")[:_HEAD_BYTES])
        elif manifest.pages and manifest.pages[0].length <= _PAGE_BYTES:
            rows = _first_of_json(next(pages(landing, manifest))[1])
        else:
            rows = []
    except (WarehouseError, csv.Error):
        return ""
    if not any(name in row for row in rows for name in columns):
        return ""
    return markdown(columns, ([row.get(name) for name in columns] for row in rows))


def _first_of_csv(head: bytes) -> list[dict[str, Any]]:
    # The head may end within a character or a row, and is shorter than the longest field that
    # Python's reader takes: what is cut off is no more than the last row.
    reader = csv.DictReader(io.StringIO(head.decode("utf-8-sig", "replace"), newline=""))
    return list(islice(reader, ROWS))


def _first_of_json(page: bytes) -> list[dict[str, Any]]:
    value = decoded(page)[0]
    content = value.get("data", value) if isinstance(value, dict) else value
    rows = content if isinstance(content, list) else [content]
    return [row for row in rows[:ROWS] if isinstance(row, dict)]


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, list | tuple):
        value = ", ".join(_text(_name(one)) for one in value[:_LISTED])
    text = plain_line(_text(value)[:_READ])
    text = text if len(text) <= _WIDTH else text[: _WIDTH - 1] + "…"
    return harmless(text).replace("|", "\\|")


def _text(value: Any) -> str:
    return raw_text(value) if isinstance(value, dict | list) else str(value)


def _name(value: Any) -> Any:
    return value.get("slug") or value.get("name") if isinstance(value, dict) else value
