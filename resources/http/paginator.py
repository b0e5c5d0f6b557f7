"""A list paged to its end: every page as it arrives, and a report of the whole.

Iterate over it and journal each page; then ask for its report. After an error that allows going on
(Defer, RetryLater), iterate over it again, or make a new one from `remaining()`. Progress follows
from the pages alone, whichever process received them: parts are requested in order, and where the
service is too slow, two halves take the place of one.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from resources.errors import CatalogError, ContractBroken, CursorLoop, RunawayPaging, TooSlow
from resources.http.calls import Caller
from resources.http.list_query import ListPart, ListQuery
from resources.http.pages import CURSOR_CHARS, RawPage, read_page, rows_asked

SLACK_PAGES: Final = 3
"""Pages beyond the total, or without a new row, before paging counts as runaway."""
GROWTH: Final = 1.1
"""How far a catalog may outgrow its first total while it is paged."""
LEAST_LIMIT: Final = 5
PAGES_MAX: Final = 100_000
_NAMED_DUPLICATES: Final = 100


@dataclass(frozen=True, slots=True)
class SweepReport:
    """The account of a sweep, at any time.

    `total_first` and `total_last` are `meta.total` of the first and last page, summed over the
    parts of a sweep that was cut (an event can lie in two of them); None where a part named none.
    `missing` rows were promised by both totals and never came. `duplicate_ids` holds the first
    hundred. `first_date` and `last_date` are the service's time of the first and last page.
    """

    rows_unique: int
    rows_arrived: int
    duplicates: int
    duplicate_ids: tuple[str, ...]
    missing: int
    total_first: int | None
    total_last: int | None
    pages: int
    requests: int
    first_date: datetime | None
    last_date: datetime | None
    complete: bool
    why_incomplete: str


@dataclass(slots=True)
class _Progress:
    """Where one part stands."""

    part: ListPart
    cursor: str | None
    ids: set[str]
    cursors: set[str] = field(default_factory=set)
    rows: int = 0
    barren_pages: int = 0
    total_first: int | None = None
    total_last: int | None = None
    ended: bool = False

    def missing(self) -> int:
        if self.total_first is None or self.total_last is None:
            return 0
        return max(0, min(self.total_first, self.total_last) - len(self.ids))


class Paginator:
    """An iterable of RawPage, to be gone through once, from one thread.

    `known_ids` are the row ids already journaled of the part that begins at a cursor: with them
    the report accounts for the whole list, without them only for the rest.
    """

    def __init__(self, caller: Caller, query: ListQuery, *, known_ids: Iterable[str] = ()) -> None:
        self._caller = caller
        self._query = query
        self._limit = query.limit
        known = set(known_ids)
        self._resumed_blind = not known and any(part.cursor for part in query.parts)
        self._open = deque(
            _Progress(part, part.cursor, set(known if part.cursor else ())) for part in query.parts
        )
        self._closed: list[_Progress] = []
        self._ids = set(known)
        self._rows = self._pages = self._requests = self._duplicates = self._bytes = 0
        self._duplicate_ids: list[str] = []
        self._first_date: datetime | None = None
        self._last_date: datetime | None = None
        self._failure = ""

    def __iter__(self) -> Iterator[RawPage]:
        """Yield pages until every part has ended.

        Raises:
            CursorLoop: a cursor came back. The page that brought it was yielded.
            RunawayPaging: pages go on past the total, bring nothing new, or are too many.
            ContractBroken: a cursor that is too long to be asked.
            CatalogError: any of the tree; `left` says what was handed over, `cursor` where it was.
        """
        self._failure = ""
        while self._open:
            progress = self._open[0]
            try:
                self._check(progress)
                page = self._next_page(progress)
            except CatalogError as error:
                self._annotate(error, progress)
                raise
            if page is not None:
                self._note(progress, page)
                yield page

    def remaining(self) -> tuple[ListPart, ...]:
        """Return what is not paged yet, each part with its cursor."""
        return tuple(replace(one.part, cursor=one.cursor) for one in self._open)

    @property
    def requests(self) -> int:
        """The requests so far. Unlike the report it may be asked for while a thread pages on."""
        return self._requests

    @property
    def report(self) -> SweepReport:
        everything = [*self._closed, *self._open]
        why = self._why_incomplete()
        return SweepReport(
            rows_unique=len(self._ids),
            rows_arrived=self._rows,
            duplicates=self._duplicates,
            duplicate_ids=tuple(self._duplicate_ids),
            missing=sum(one.missing() for one in self._closed),
            total_first=_sum([one.total_first for one in everything]),
            total_last=_sum([one.total_last for one in everything]),
            pages=self._pages,
            requests=self._requests,
            first_date=self._first_date,
            last_date=self._last_date,
            complete=not why,
            why_incomplete=why,
        )

    def _why_incomplete(self) -> str:
        if self._open:
            return self._failure or "it has not come to its end"
        if self._resumed_blind:
            return "it began at a cursor, and the rows before it are not known here"
        missing = sum(one.missing() for one in self._closed)
        return f"{missing} rows that meta.total promised did not come" if missing else ""

    def _next_page(self, progress: _Progress) -> RawPage | None:
        """Fetch the next page, asking for less while it is too slow; None when it was cut."""
        while True:
            try:
                return self._fetch(progress)
            except TooSlow as error:
                self._requests += error.attempts
                if self._limit is not None and self._limit > LEAST_LIMIT:
                    self._limit = max(LEAST_LIMIT, self._limit // 2)
                elif self._cut(progress):
                    return None
                else:
                    error.attempts = 0
                    raise

    def _fetch(self, progress: _Progress) -> RawPage:
        params = progress.part.params()
        if self._limit is not None:
            params["limit"] = str(self._limit)
        cursor = progress.cursor
        if cursor is not None:
            params["cursor"] = cursor
        query = self._query
        return self._caller.get(
            query.path,
            params,
            lambda answer: read_page(
                answer, path=query.path, params=params, cursor=cursor, key_fields=query.key_fields
            ),
            rows=rows_asked(params),
        )

    def _cut(self, progress: _Progress) -> bool:
        """Put two halves of its dates in place of a part, from their beginning."""
        halves = progress.part.span.halves()
        if halves is None:
            return False
        self._open.popleft()
        for half in reversed(halves):
            part = replace(progress.part, span=half, cursor=None)
            self._open.appendleft(_Progress(part, None, set()))
        return True

    def _note(self, progress: _Progress, page: RawPage) -> None:
        fresh = 0
        for row_id in page.ids:
            if row_id in progress.ids:
                self._duplicates += 1
                if len(self._duplicate_ids) < _NAMED_DUPLICATES:
                    self._duplicate_ids.append(row_id)
            else:
                fresh += 1
                progress.ids.add(row_id)
        self._ids.update(page.ids)
        self._rows += page.rows
        self._bytes += len(page.body)
        self._pages += 1
        self._requests += page.attempts
        self._first_date = self._first_date or page.date
        self._last_date = page.date
        progress.rows += page.rows
        progress.barren_pages = 0 if fresh else progress.barren_pages + 1
        if progress.total_first is None:
            progress.total_first = page.total
        progress.total_last = page.total if page.total is not None else progress.total_last
        if page.cursor_in is not None:
            progress.cursors.add(page.cursor_in)
        progress.cursor = page.cursor_out
        if page.cursor_out is None:
            progress.ended = True
            self._closed.append(self._open.popleft())

    def _check(self, progress: _Progress) -> None:
        """Look at the cursor about to be asked, and at how much has come already."""
        where = f"Page {self._pages} of {self._query.path}"
        if progress.cursor in progress.cursors:
            raise CursorLoop(f"{where} gave back a cursor that was asked before")
        if progress.cursor is not None and len(progress.cursor) > CURSOR_CHARS:
            raise ContractBroken(
                f"{where} gave back a cursor of over {CURSOR_CHARS} characters",
                expected="A cursor stands in the address of the next request",
            )
        if progress.barren_pages >= SLACK_PAGES:
            raise RunawayPaging(f"{where} is the third in a row without a new row, and has a next")
        most = PAGES_MAX * float(self._query.limit or 1)
        if progress.total_first is not None:
            most = progress.total_first * GROWTH + SLACK_PAGES * (self._query.limit or 50)
        if progress.rows > most or self._pages >= PAGES_MAX:
            raise RunawayPaging(
                f"{where} has a next, but {progress.rows} rows came already",
                expected=f"meta.total promised {progress.total_first}",
            )
        bounds = self._caller.bounds
        if self._bytes > bounds.pull_bytes or self._rows > bounds.pull_rows:
            raise RunawayPaging(
                f"{where} has a next, but {self._rows} rows in {self._bytes} bytes came already",
                expected=f"No list has over {bounds.pull_rows} rows or {bounds.pull_bytes} bytes",
            )

    def _annotate(self, error: CatalogError, progress: _Progress) -> None:
        if not isinstance(error, CursorLoop | RunawayPaging):
            self._requests += error.attempts
        error.left = f"{self._pages} pages ({self._rows} rows) before it were handed over"
        error.cursor = progress.cursor
        self._failure = f"{type(error).__name__}: {error.happened}"


def _sum(totals: list[int | None]) -> int | None:
    known = [total for total in totals if total is not None]
    return sum(known) if known and len(known) == len(totals) else None


_BOUNDS: Final = ("from", "to")


@dataclass(slots=True)
class _Standing:
    """Where one part stands."""

    part: ListPart
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

    def __init__(self, parts: Sequence[ListPart]) -> None:
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
    def remaining(self) -> tuple[ListPart, ...]:
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
