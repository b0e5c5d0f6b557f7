"""Where a sweep stands, told from its pages alone, whichever process received them.

A sweep takes its parts in order and, where the service is too slow, puts two halves in place
of one (`sweep.Sweep`); both can be read back from what each page was asked.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from resources.pages import RawPage
from resources.queries import Part

_BOUNDS: Final = ("from", "to")


@dataclass(slots=True)
class _Standing:
    """Where one part stands."""

    part: Part
    cursor: str | None = None
    ids: set[str] = field(default_factory=set)
    total_first: int | None = None
    total_last: int | None = None

    def missing(self) -> int:
        if self.total_first is None or self.total_last is None:
            return 0
        return max(0, min(self.total_first, self.total_last) - len(self.ids))

    def was_asked(self, page: RawPage) -> bool:
        own = self.part.params()
        same = all(page.params.get(name) == own.get(name) for name in _BOUNDS)
        return same and page.cursor_in == self.cursor


class SweepTrace:
    """Follows the pages of a sweep. `rows` arrived, duplicates among them.

    `lost` is set by a page that these parts can't have brought: nothing is known any more.
    """

    def __init__(self, parts: Sequence[Part]) -> None:
        self._open = deque(_Standing(part) for part in parts)
        self._closed: list[_Standing] = []
        self.rows = self.pages = 0
        self.lost = False

    def follow(self, page: RawPage) -> None:
        self.rows += page.rows
        self.pages += 1
        self.lost = self.lost or not self._cut_until_asked(page)
        if self.lost:
            return
        standing = self._open[0]
        standing.ids.update(page.ids)
        if standing.total_first is None:
            standing.total_first = page.total
        standing.total_last = page.total if page.total is not None else standing.total_last
        standing.cursor = page.cursor_out
        if page.cursor_out is None:
            self._closed.append(self._open.popleft())

    @property
    def remaining(self) -> tuple[Part, ...]:
        """What is not paged yet, each part with its cursor."""
        return tuple(replace(one.part, cursor=one.cursor) for one in self._open)

    @property
    def ended(self) -> bool:
        return not self._open and not self.lost

    @property
    def ids_under_way(self) -> set[str]:
        """The ids of the part that goes on at a cursor."""
        return set(self._open[0].ids) if self._open else set()

    @property
    def total(self) -> int | None:
        """What the last pages said would come, over all parts; None where one said nothing."""
        totals = [one.total_last for one in (*self._closed, *self._open)]
        known = [total for total in totals if total is not None]
        return sum(known) if known and len(known) == len(totals) and not self.lost else None

    def why_incomplete(self) -> str:
        """Return why these pages are not all of it; empty when they are."""
        if self.lost:
            return "the pages don't follow each other, and what is left can't be told"
        if self._open:
            return "it has not come to its end"
        missing = sum(one.missing() for one in self._closed)
        return f"{missing} rows that meta.total promised did not come" if missing else ""

    def _cut_until_asked(self, page: RawPage) -> bool:
        while self._open:
            standing = self._open[0]
            if standing.was_asked(page):
                return True
            cut = standing.part.span.halves()
            if page.cursor_in is not None or cut is None:
                return False
            self._open.popleft()
            self._open.extendleft(
                _Standing(replace(standing.part, span=half)) for half in reversed(cut)
            )
        return False
