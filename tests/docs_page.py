"""Fenced blocks of a Markdown page, and the comparison of an output with the page."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

_FENCE: Final = re.compile(r"^((?:<!-- .+ -->\n)*)```(.*)\n((?:.*\n)*?)^```$", re.MULTILINE)
_MARK: Final = re.compile(r"<!-- ([^:\n]+?)(?:: (.+))? -->")
_ROWS_SHOWN: Final = 8
_CELL_SHOWN: Final = 46


@dataclass(frozen=True, slots=True)
class Block:
    """A block that runs: its language, text and marks, and where its output is in the page."""

    language: str
    text: str
    marks: Mapping[str, str]
    line: int
    output: str | None = None
    output_at: tuple[int, int] = (0, 0)
    is_shape: bool = False

    @property
    def commands(self) -> list[str]:
        """The lines of commands, without comments."""
        lines = self.text.replace("\\\n", " ").splitlines()
        return [line for line in lines if line.strip() and not line.startswith("#")]

    def runs(self) -> bool:
        """Whether the block runs here."""
        return "not run" not in self.marks and find_spec(self.marks.get("needs", "re")) is not None

    def problem(self, found: str) -> str:
        """Return how an output differs from the page; empty if it does not."""
        same = has_shape if self.is_shape else matches
        if self.output is None or same(self.output, found):
            return ""
        return f"page:\n{self.output}\nnow:\n{found}"


def blocks_of(page: Path) -> list[Block]:
    """Return the blocks of a page that run, in their order."""
    text, found = page.read_text("utf-8"), []
    fences = list(_FENCE.finditer(text))
    for number, fence in enumerate(fences):
        after = fences[number + 1] if number + 1 < len(fences) else None
        if fence[2] not in ("sh", "sql", "python"):
            continue
        marks = {name: value or "" for name, value in _MARK.findall(fence[1])}
        block = (fence[2], fence[3], marks, text.count("\n", 0, fence.start(2)) + 1)
        is_output = after and after[2] in ("", "text")
        if after and is_output and not text[fence.end() : after.start()].strip():
            is_shape = "<!-- shape -->" in after[1]
            found.append(Block(*block, after[3], after.span(3), is_shape))
        else:
            found.append(Block(*block))
    return found


def home_of(page: Path) -> str:
    """Return the name of the page's home, `march` if the page does not say."""
    found = re.search(r"^<!-- home: (\w+) -->$", page.read_text("utf-8"), re.MULTILINE)
    return found[1] if found else "march"


def matches(shown: str, found: str) -> bool:
    """Whether an output is the shown one: `…` is any text, a line of it any number of lines."""
    shown, found = (re.sub(r"[ \t]+$", "", text.strip(), flags=re.M) for text in (shown, found))
    pattern = re.sub(r"^…(?:\\?\n|\Z)", r"(?:.*(?:\\n|\\Z))*", re.escape(shown), flags=re.M)
    return re.fullmatch(pattern.replace("…", ".*"), found) is not None


def has_shape(shown: str, found: str) -> bool:
    """Whether an output has the header and, unless it is cut by `…`, the lines of the shown one."""
    lines, others = ([line for line in text.splitlines() if line] for text in (shown, found))
    is_cut = any(line.startswith("…") for line in lines)
    return _header(lines) == _header(others) and (is_cut or len(lines) == len(others))


def replaced(text: str, texts: Mapping[str, str]) -> str:
    for old, new in texts.items():
        text = text.replace(old, new)
    return text


def table_of(value: Any) -> str:
    """Return a value as a page shows it: text, or the first rows of a table and their number."""
    if value is None or isinstance(value, str | int | float | datetime):
        return "" if value is None else f"{value}\n"
    rows = _rows(value)
    if not rows:
        return "no row\n"
    table = [[*rows[0]], *([_cell(cell) for cell in row.values()] for row in rows[:_ROWS_SHOWN])]
    text = ""
    for cells in table:
        for number, name in enumerate(rows[0]):
            width = max(len(line[number]) for line in table)
            is_right = all(_is_number(row[name]) for row in rows)
            text += "  " * (number > 0)
            text += cells[number].rjust(width) if is_right else cells[number].ljust(width)
        text = f"{text.rstrip()}\n"
    return text + (f"… {len(rows)} rows\n" if len(rows) > _ROWS_SHOWN else "")


def _header(lines: list[str]) -> list[str]:
    named = (re.findall(r"[A-Za-z_]\w*", line) for line in lines)
    return next((words for words in named if words), [])


def _rows(value: Any) -> list[dict[str, Any]]:
    """Return the rows of a Result, a data frame with its named index, a list, or one row."""
    if hasattr(value, "df"):
        value = value.df()
    if hasattr(value, "reset_index"):
        value = value.reset_index(drop=set(value.index.names) == {None}).to_dict("records")
    rows = [value] if isinstance(value, Mapping) else value
    return [{str(name): _plain(cell) for name, cell in row.items()} for row in rows]


def _plain(value: Any) -> Any:
    """Return a value of pandas, numpy or Arrow as one of Python, timestamps in UTC."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if type(value).__name__ == "NAType" or value != value:
        return None
    if isinstance(value, datetime):
        return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)
    return value


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.3f}".rstrip("0").rstrip(".")
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M}"
    text = ", ".join(map(_cell, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= _CELL_SHOWN else f"{text[: _CELL_SHOWN - 1]}…"
