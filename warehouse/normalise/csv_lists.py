"""Learn how the lists in the cells of an export are separated, and split them.

The separator is a property of the feed: the first file with evidence teaches it, and the state
keeps it for later files. Evidence is a cell that a separator splits into known elements.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, Literal

import msgspec

from catalog.contract.records import LIST_SEPARATOR

ListColumn = Literal["categories", "coins"]
LIST_COLUMNS: Final[tuple[ListColumn, ...]] = ("categories", "coins")
SEPARATORS: Final = (LIST_SEPARATOR, "|", ",")
"""The possible separators. Of those with equal evidence the first is chosen."""
_BRACKETED: Final = re.compile(r"\([^()]*\)")
_SEPARATOR: Final = re.compile("[;|,]")
_SLUG: Final = re.compile(r"[^\s;|,\[\](){}\"']{1,200}")
"""Coins are listed by slug or ticker, which contain neither blanks nor a separator."""
_NAMES_MAX: Final = 200
"""So many category names with a separator in them are kept whole."""


class ListSeparators(msgspec.Struct, frozen=True, omit_defaults=True):
    """The learnt separator of each column; None is not learnt: the documented one is used."""

    categories: str | None = None
    coins: str | None = None


NOTHING_LEARNT: Final = ListSeparators()


@dataclass(frozen=True, slots=True)
class KnownLists:
    """A home's knowledge of its lists: the category names and ids, and the learnt separators."""

    names: frozenset[str] = frozenset()
    learnt: ListSeparators = NOTHING_LEARNT


@dataclass(frozen=True)
class ListForm:
    """How the lists of a file are read. `whole` are category names that contain a separator."""

    categories: str = LIST_SEPARATOR
    coins: str = LIST_SEPARATOR
    whole: tuple[str, ...] = ()
    json: tuple[ListColumn, ...] = ()
    """The columns with JSON arrays, which only the tolerant reader can read."""

    def separator(self, column: ListColumn) -> str:
        return self.categories if column == "categories" else self.coins

    def element(self, column: ListColumn) -> str:
        """Return the pattern of one element, for Python and for DuckDB (RE2).

        A separator in brackets, or in a known category name, does not separate.
        """
        whole = self.whole if column == "categories" else ()
        return _element(self.separator(column), whole)

    @cached_property
    def _patterns(self) -> dict[ListColumn, re.Pattern[str]]:
        return {column: re.compile(self.element(column)) for column in LIST_COLUMNS}

    def split(self, cell: str, column: ListColumn) -> list[Any]:
        """Return the elements of a cell; a JSON array is one whatever the separator."""
        found = _json_list(cell)
        return self._patterns[column].findall(cell) if found is None else found

    def notes(self) -> Iterator[str]:
        """Yield how this form differs from the contract's."""
        for column in LIST_COLUMNS:
            if column in self.json:
                yield f"{column} as JSON arrays"
            if (separator := self.separator(column)) != LIST_SEPARATOR:
                yield f"{column} joined with {separator}"


def make_form(known: KnownLists) -> ListForm:
    """Return how lists are read with what a home has learnt."""
    whole = sorted(name for name in known.names if _SEPARATOR.search(_bare(name)))
    return ListForm(
        known.learnt.categories or LIST_SEPARATOR,
        known.learnt.coins or LIST_SEPARATOR,
        tuple(whole[:_NAMES_MAX]),
    )


@dataclass(slots=True)
class ListEvidence:
    """The evidence of a file's cells. `contradicted` has the columns in which another separator has
    more evidence than the learnt separator, with the other separator."""

    form: ListForm
    learnt: ListSeparators
    contradicted: dict[ListColumn, str] = field(default_factory=dict)

    def flag(self) -> str | None:
        """Return why the batch is flagged, None if its lists are as learnt."""
        if not self.contradicted:
            return None
        parts = [
            f"{column} look joined with {found!r}, and those of earlier files with "
            f"{self.form.separator(column)!r}"
            for column, found in self.contradicted.items()
        ]
        return (
            f"{'; '.join(parts)}: these lists are not read, and the batch makes no event missing. "
            "If the feed has changed, release the batch: its separator is then learnt"
        )


def weigh(
    cells: Mapping[ListColumn, Iterable[str]], known: KnownLists, *, trusted: bool
) -> ListEvidence:
    """Return how a file with these cells is read, and what it teaches.

    With `trusted`, its own separators replace those that were learnt before.
    """
    form = make_form(known)
    evidence = ListEvidence(form, known.learnt)
    for column, found in cells.items():
        whole = form.whole if column == "categories" else ()
        names = known.names if column == "categories" else frozenset[str]()
        votes, has_json = _votes(set(found), names, whole, by_form=column == "coins")
        if has_json:
            evidence.form = replace(evidence.form, json=(*evidence.form.json, column))
        if not votes:
            continue
        best = max(SEPARATORS, key=lambda separator: votes[separator])
        learnt = None if trusted else getattr(known.learnt, column)
        if learnt is None:
            changes: dict[str, Any] = {column: best}
            evidence.form = replace(evidence.form, **changes)
            evidence.learnt = msgspec.structs.replace(evidence.learnt, **changes)
        elif votes[best] > votes[learnt]:
            evidence.contradicted[column] = best
    return evidence


def _votes(
    cells: set[str], names: frozenset[str], whole: tuple[str, ...], *, by_form: bool
) -> tuple[Counter[str], bool]:
    """Return how many cells each separator splits into known elements, and whether some are JSON.

    Known are the names of the home, and each cell of the file without any separator.
    """
    has_json = False
    joined: list[str] = []
    singles: set[str] = set()
    for cell in cells:
        if _json_list(cell) is not None:
            has_json = True
        elif cell.strip() in names:
            continue
        elif _SEPARATOR.search(_bare(cell)):
            joined.append(cell)
        else:
            singles.add(cell.strip())

    def is_known(element: str) -> bool:
        if element in names or element in singles:
            return True
        return by_form and _SLUG.fullmatch(element) is not None

    votes: Counter[str] = Counter()
    for separator in SEPARATORS:
        pattern = re.compile(_element(separator, whole))
        votes[separator] += sum(
            _is_list(cell, pattern, is_known) for cell in joined if separator in cell
        )
    return +votes, has_json


def _is_list(cell: str, pattern: re.Pattern[str], is_known: Callable[[str], bool]) -> bool:
    elements = [element.strip() for element in pattern.findall(cell)]
    elements = [element for element in elements if element]
    return len(elements) > 1 and all(map(is_known, elements))


def _element(separator: str, whole: Iterable[str]) -> str:
    escaped = [re.escape(name) for name in sorted(whole, key=len, reverse=True)]
    return f"(?:{'|'.join([*escaped, _BRACKETED.pattern, f'[^{separator}]'])})+"


def _bare(text: str) -> str:
    return _BRACKETED.sub("", text)


def _json_list(cell: str) -> list[Any] | None:
    """Return the JSON array in a cell, None if it is none."""
    if not cell.lstrip().startswith("["):
        return None
    try:
        found = json.loads(cell)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, list) else None
