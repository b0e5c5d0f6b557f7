"""Run the cookbook on a published warehouse, and compare each answer with the page.

    python docs/run_cookbook.py FOLDER          # compare; exit code 1 if an answer differs
    python docs/run_cookbook.py FOLDER --write  # write the answers into the page

A question is a section `## N. …`. Its blocks of Python and SQL run in their order; the value of the
last expression of the last block of Python and the rows of the SQL are its two answers. They must
have the same columns and rows, and be what its block of text shows. The blocks before the first
question run once. Needs `almanac` and its dependencies alone.
"""

import argparse
import ast
import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, date, datetime
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any, Final

import almanac

PAGE: Final = Path(__file__).with_name("cookbook.md")
HOME: Final = '"cookbook-home"'
"""The home in the code of the page; the runner puts the given one in its place."""
PRICES: Final = '"docs/prices.csv"'
"""The prices in the code of the page; the file beside this program."""
EXTRA: Final = "crypto-almanac[study]"
"""A question that names it needs scipy, and is not run without."""
_QUESTION: Final = re.compile(r"^## (\d+)\. (.+)$", re.MULTILINE)
_BLOCK: Final = re.compile(r"^```(python|sql|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ROWS_SHOWN: Final = 8
_CELL_SHOWN: Final = 46

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Question:
    """A section of the page. `blocks` are pairs of language and text, in their order."""

    number: int
    title: str
    blocks: tuple[tuple[str, str], ...]
    needs_extra: bool

    @property
    def shown(self) -> str:
        """The answer that the page shows."""
        return "".join(text for language, text in self.blocks if language == "text")


@dataclass(frozen=True, slots=True)
class Answer:
    """The rows of the Python and of the SQL of a question."""

    python: list[Row]
    sql: list[Row]

    @property
    def agree(self) -> bool:
        """Whether both have the same columns, in the same order, and the same rows."""
        return list(map(_comparable, self.python)) == list(map(_comparable, self.sql))


class Cookbook:
    """A page, and a warehouse that its code runs on."""

    def __init__(self, home: Path, page: Path = PAGE) -> None:
        self.text = page.read_text("utf-8")
        self.questions = list(_questions(self.text))
        self._names: dict[str, Any] = {}
        for _, code in _BLOCK.findall(self.text[: _first_question(self.text)]):
            _run_python(code.replace(HOME, repr(str(home))), self._names)
        self._prices = repr(str(Path(__file__).with_name("prices.csv")))

    def close(self) -> None:
        self.database.close()

    @property
    def database(self) -> almanac.Database:
        found = self._names["db"]
        assert isinstance(found, almanac.Database)
        return found

    def answer(self, question: Question) -> Answer:
        """Run the blocks of a question."""
        names, values, rows = dict(self._names), None, []
        for language, text in question.blocks:
            if language == "python":
                values = _run_python(text.replace(PRICES, self._prices), names)
            elif language == "sql":
                rows = rows_of(self.database.sql(text))
        return Answer(rows_of(values), rows)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Run the cookbook on a published warehouse.")
    parser.add_argument("home", type=Path, help="a home, or its warehouse.duckdb")
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--write", action="store_true", help="write the answers into the page")
    given = parser.parse_args(arguments)
    failed = left_out = 0
    with closing(Cookbook(given.home, given.page)) as cookbook:
        text = cookbook.text
        for question in cookbook.questions:
            if question.needs_extra and find_spec("scipy") is None:
                left_out += 1
                sys.stdout.write(f"{question.number:>3}. not run: it needs {EXTRA}\n")
                continue
            answer = cookbook.answer(question)
            shown = table_of(answer.python)
            text = _with_answer(text, question, shown)
            problem = _problem(question, answer, shown, is_written=given.write)
            failed += bool(problem)
            sys.stdout.write(f"{question.number:>3}. {question.title}{problem}\n")
    if given.write:
        given.page.write_text(text, "utf-8")
    ran = len(cookbook.questions) - left_out
    sys.stdout.write(f"{ran} questions, {failed} with another answer, {left_out} not run\n")
    return int(failed > 0)


def rows_of(answer: Any) -> list[Row]:
    """Return the rows of an answer: a Result, a data frame, a list of rows, or one row."""
    if hasattr(answer, "to_dict"):
        answer = answer.to_dict("records")
    if isinstance(answer, Mapping):
        answer = [answer]
    return [{str(name): _plain(value) for name, value in row.items()} for row in answer]


def table_of(rows: list[Row]) -> str:
    """Return rows as the page shows them: the first ones, and how many there are."""
    if not rows:
        return "no row\n"
    shown = [[_cell(value) for value in row.values()] for row in islice(rows, _ROWS_SHOWN)]
    lines = [list(rows[0]), *shown]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    numbers = [all(_is_number(row[name]) for row in rows) for name in rows[0]]
    text = "".join(f"{_line(cells, widths, numbers)}\n" for cells in lines)
    return text + (f"… {len(rows)} rows\n" if len(rows) > len(shown) else "")


def _questions(text: str) -> Iterator[Question]:
    heads = list(_QUESTION.finditer(text))
    for head, following in zip(heads, [*heads[1:], None], strict=True):
        section = text[head.end() : following.start() if following else len(text)]
        yield Question(int(head[1]), head[2], tuple(_BLOCK.findall(section)), EXTRA in section)


def _first_question(text: str) -> int:
    found = _QUESTION.search(text)
    return found.start() if found else len(text)


def _run_python(code: str, names: dict[str, Any]) -> Any:
    """Run code; return the value of its last statement if that is an expression."""
    parsed = ast.parse(code)
    last = parsed.body.pop() if isinstance(parsed.body[-1], ast.Expr) else None
    exec(compile(parsed, "<cookbook>", "exec"), names)  # The page is code to run.
    if last is None:
        return None
    assert isinstance(last, ast.Expr)
    return eval(compile(ast.Expression(last.value), "<cookbook>", "eval"), names)


def _with_answer(text: str, question: Question, shown: str) -> str:
    start = next(head for head in _QUESTION.finditer(text) if int(head[1]) == question.number).end()
    block = next(block for block in _BLOCK.finditer(text, start) if block[1] == "text")
    return f"{text[: block.start(2)]}{shown}{text[block.end(2) :]}"


def _problem(question: Question, answer: Answer, shown: str, *, is_written: bool) -> str:
    if not answer.agree:
        return f"\nPython:\n{shown}SQL:\n{table_of(answer.sql)}"
    if shown != question.shown and not is_written:
        return f"\nshown:\n{question.shown}now:\n{shown}"
    return ""


def _plain(value: Any) -> Any:
    """Return a value of pandas, numpy or Arrow as one of Python, instants in UTC."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if hasattr(value, "to_pydatetime"):
        value = None if value != value else value.to_pydatetime(warn=False)
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(value, float):
        return None if math.isnan(value) else value
    if isinstance(value, datetime):
        return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)
    return value


def _comparable(row: Row) -> list[tuple[str, Any]]:
    return [(name, _rounded(value)) for name, value in row.items()]


def _rounded(value: Any) -> Any:
    """Return a number to nine digits: the order of a sum is nobody's."""
    if _is_number(value) and value is not None:
        return float(f"{value:.9g}")
    if isinstance(value, date) and not isinstance(value, datetime):
        return datetime(value.year, value.month, value.day, tzinfo=UTC)
    return value


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.3f}".rstrip("0").rstrip(".")
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M}"
    text = ", ".join(map(_cell, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= _CELL_SHOWN else f"{text[: _CELL_SHOWN - 1]}…"


def _line(cells: list[str], widths: list[int], numbers: list[bool]) -> str:
    padded = (
        cell.rjust(width) if is_number else cell.ljust(width)
        for cell, width, is_number in zip(cells, widths, numbers, strict=True)
    )
    return "  ".join(padded).rstrip()


if __name__ == "__main__":
    sys.exit(main())
