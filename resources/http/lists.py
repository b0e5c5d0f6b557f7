"""A list: its query, how it splits into smaller parts, and paging to its end with a report.

Iterate over a `Paginator` and journal each page; then read its report. After an error that allows
to continue (Defer, RetryLater), iterate again, or make a new paginator from `remaining()`. The
pages alone show how far a list is paged, so the process that requests them and a process that reads
them back from a journal agree: parts are requested in order, and if the service is too slow, two
halves replace one part.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from resources.errors import (
    CatalogError,
    ContractBroken,
    CursorLoop,
    NotModified,
    RunawayPaging,
    TooSlow,
)
from resources.http.bodies import CURSOR_CHARS, RawPage, read_page, rows_requested
from resources.http.calls import Caller
from resources.http.list_query import ListPart


@dataclass(frozen=True, slots=True)
class Validators:
    """The ETag of an earlier response, else its date, as the service sent it."""

    etag: str | None = None
    last_modified: str | None = None

    def headers(self) -> dict[str, str]:
        """Return the header by which the service can answer 304."""
        if self.etag is not None:
            return {"If-None-Match": self.etag}
        return {} if self.last_modified is None else {"If-Modified-Since": self.last_modified}


@dataclass(frozen=True, slots=True)
class ListQuery:
    """The request of a paginator. `key_fields` identify a row; `limit` None sends none.

    With `validators` a service may answer 304 to the first page, which raises NotModified.
    """

    path: str
    parts: tuple[ListPart, ...]
    key_fields: tuple[str, ...]
    limit: int | None
    validators: Validators = Validators()


SLACK_PAGES: Final = 3
"""Pages beyond the total, or without a new row, after which paging is an error."""
GROWTH: Final = 1.1
"""How much a catalog may grow beyond its first total while it is paged."""
LEAST_LIMIT: Final = 5
PAGES_MAX: Final = 100_000
_BOUNDS: Final = ("from", "to")


@dataclass(slots=True)
class PartProgress:
    """How far one part is paged. `pages_without_new_ids` are in a row."""

    part: ListPart
    cursor: str | None = None
    ids: set[str] = field(default_factory=set)
    cursors: set[str] = field(default_factory=set)
    rows: int = 0
    pages_without_new_ids: int = 0
    total_first: int | None = None
    total_last: int | None = None

    def take(self, page: RawPage) -> int:
        """Count a page of this part, and return how many rows it repeats."""
        known = len(self.ids)
        self.ids.update(page.ids)
        self.rows += page.rows
        self.pages_without_new_ids = 0 if len(self.ids) > known else self.pages_without_new_ids + 1
        if self.total_first is None:
            self.total_first = page.total
        self.total_last = page.total if page.total is not None else self.total_last
        if page.cursor_in is not None:
            self.cursors.add(page.cursor_in)
        self.cursor = page.cursor_out
        return page.rows - (len(self.ids) - known)

    def missing(self) -> int:
        """Return how many rows that both totals promised did not arrive."""
        if self.total_first is None or self.total_last is None:
            return 0
        return max(0, min(self.total_first, self.total_last) - len(self.ids))

    def is_next(self, page: RawPage) -> bool:
        """Whether a page is the next of this part."""
        own = self.part.params()
        same = all(page.params.get(name) == own.get(name) for name in _BOUNDS)
        return same and page.cursor_in == self.cursor


class ListProgress:
    """`rows` and `pages` count what was received, duplicates included.

    `known_ids` are the ids of the part that begins at a cursor. A page that does not belong to
    these parts sets `lost`: from then on the progress is not known.
    """

    def __init__(self, parts: Sequence[ListPart], *, known_ids: Iterable[str] = ()) -> None:
        known = set(known_ids)
        self._open = deque(
            PartProgress(part, part.cursor, set(known if part.cursor else ())) for part in parts
        )
        self._closed: list[PartProgress] = []
        self.rows = self.pages = 0
        self.lost = self._is_open_ended = False

    @property
    def current(self) -> PartProgress | None:
        """The part that is paged now; None at the end."""
        return self._open[0] if self._open else None

    def take(self, page: RawPage) -> int:
        """Count a page of the current part, and return how many rows it repeats."""
        self.rows += page.rows
        self.pages += 1
        self._is_open_ended |= page.is_open_ended
        duplicates = self._open[0].take(page)
        if page.cursor_out is None:
            self._closed.append(self._open.popleft())
        return duplicates

    def follow(self, page: RawPage) -> None:
        """Count a page that another process requested, with the splits that it shows."""
        if not self.lost and self._split_until_requested(page):
            self.take(page)
            return
        self.lost = True
        self.rows += page.rows
        self.pages += 1

    def split(self) -> bool:
        """Replace the current part by two halves of its dates, from their beginning."""
        part = self._open[0].part
        halves = part.span.halves()
        if halves is None:
            return False
        self._open.popleft()
        self._open.extendleft(
            PartProgress(replace(part, span=half, cursor=None)) for half in reversed(halves)
        )
        return True

    @property
    def remaining(self) -> tuple[ListPart, ...]:
        """The parts that are not paged yet, each with its cursor."""
        return tuple(replace(progress.part, cursor=progress.cursor) for progress in self._open)

    @property
    def ended(self) -> bool:
        return not self._open and not self.lost

    @property
    def current_ids(self) -> set[str]:
        """The ids of the part that continues at a cursor."""
        return set(self._open[0].ids) if self._open else set()

    @property
    def total_first(self) -> int | None:
        """The sum of the totals that each part's first page states; None if a part states none."""
        return self._sum([progress.total_first for progress in (*self._closed, *self._open)])

    @property
    def total_last(self) -> int | None:
        """The sum of the totals that each part's last page states; None if a part states none."""
        return self._sum([progress.total_last for progress in (*self._closed, *self._open)])

    @property
    def missing(self) -> int:
        """How many promised rows of the ended parts did not arrive."""
        return sum(progress.missing() for progress in self._closed)

    def why_incomplete(self) -> str:
        """Return why these pages are not the whole list; empty if they are."""
        if self.lost:
            return "the pages do not form a sequence, so the rest is not known"
        if self._open:
            return "the list did not reach its end"
        if self._is_open_ended:
            return "a full page has no `meta` that could name a next page"
        missing = self.missing
        return f"{missing} rows that meta.total promised did not arrive" if missing else ""

    def _sum(self, totals: list[int | None]) -> int | None:
        known = [total for total in totals if total is not None]
        return sum(known) if known and len(known) == len(totals) and not self.lost else None

    def _split_until_requested(self, page: RawPage) -> bool:
        while self._open:
            if self._open[0].is_next(page):
                return True
            if page.cursor_in is not None or not self.split():
                return False
        return False


@dataclass(frozen=True, slots=True)
class ListReport:
    """The report of a list, at any time.

    `total_first` and `total_last` are `meta.total` of the first and last page, summed over the
    parts of a split list (an event can be in two of them); None if a part has none. `missing` rows
    were promised by both totals and did not arrive.
    """

    rows_unique: int
    rows_arrived: int
    duplicates: int
    missing: int
    total_first: int | None
    total_last: int | None
    pages: int
    requests: int
    complete: bool
    why_incomplete: str


class Paginator:
    """An iterable of RawPage, to be iterated once, in one thread.

    `known_ids` are the ids of journaled rows of the part that begins at a cursor: with them the
    report is about the whole list, without them only about the rest.
    """

    def __init__(self, caller: Caller, query: ListQuery, *, known_ids: Iterable[str] = ()) -> None:
        self._caller = caller
        self._query = query
        self._limit = query.limit
        self._ids = set(known_ids)
        self._resumed_blind = not self._ids and any(part.cursor for part in query.parts)
        self._progress = ListProgress(query.parts, known_ids=self._ids)
        self._requests = self._duplicates = self._bytes = 0
        self._failure = ""

    def __iter__(self) -> Iterator[RawPage]:
        """Yield pages until every part has ended.

        Raises:
            CursorLoop: a cursor was returned twice. The page with it was yielded.
            RunawayPaging: pages continue past the total, have no new row, or are too many.
            NotModified: the first page was answered 304, so the whole list is unchanged.
            ContractBroken: a cursor is too long to be sent, or a later page was answered 304.
            CatalogError: any of the tree; `left` says what was yielded, `cursor` where it was.
        """
        self._failure = ""
        while (part := self._progress.current) is not None:
            try:
                self._check(part)
                page = self._next_page(part)
            except CatalogError as error:
                self._annotate(error, part)
                raise
            if page is not None:
                self._note(page)
                yield page

    def remaining(self) -> tuple[ListPart, ...]:
        """Return the parts that are not paged yet, each with its cursor."""
        return self._progress.remaining

    @property
    def requests(self) -> int:
        """The requests so far. Unlike the report it may be read while another thread pages."""
        return self._requests

    @property
    def report(self) -> ListReport:
        progress, why = self._progress, self._why_incomplete()
        return ListReport(
            rows_unique=len(self._ids),
            rows_arrived=progress.rows,
            duplicates=self._duplicates,
            missing=progress.missing,
            total_first=progress.total_first,
            total_last=progress.total_last,
            pages=progress.pages,
            requests=self._requests,
            complete=not why,
            why_incomplete=why,
        )

    def _why_incomplete(self) -> str:
        if self._failure and not self._progress.ended:
            return self._failure
        if self._resumed_blind and self._progress.ended:
            return "it started at a cursor, and the rows before it are not known here"
        return self._progress.why_incomplete()

    def _next_page(self, part: PartProgress) -> RawPage | None:
        """Fetch the next page, with a smaller limit if it is too slow; None after a split."""
        while True:
            try:
                return self._fetch(part)
            except TooSlow as error:
                self._requests += error.attempts
                if self._limit is not None and self._limit > LEAST_LIMIT:
                    self._limit = max(LEAST_LIMIT, self._limit // 2)
                elif self._progress.split():
                    return None
                else:
                    error.attempts = 0
                    raise

    def _fetch(self, part: PartProgress) -> RawPage:
        params = part.part.params()
        if self._limit is not None:
            params["limit"] = str(self._limit)
        cursor = part.cursor
        if cursor is not None:
            params["cursor"] = cursor
        query = self._query
        # Validators are of the whole list: a later page would be compared with its first one.
        is_first = cursor is None and self._progress.pages == 0
        validators = query.validators if is_first else Validators()
        try:
            return self._caller.get(
                query.path,
                params,
                lambda answer: read_page(
                    answer,
                    path=query.path,
                    params=params,
                    cursor=cursor,
                    key_fields=query.key_fields,
                ),
                rows=rows_requested(params),
                headers=validators.headers(),
            )
        except NotModified as error:
            if is_first:
                raise
            unexpected = ContractBroken(error.happened, expected="No page but the first can be 304")
            unexpected.attempts, unexpected.evidence = error.attempts, error.evidence
            raise unexpected from error

    def _note(self, page: RawPage) -> None:
        self._duplicates += self._progress.take(page)
        self._ids.update(page.ids)
        self._bytes += len(page.body)
        self._requests += page.attempts

    def _check(self, part: PartProgress) -> None:
        """Check the next cursor, and how much was received already."""
        pages, rows = self._progress.pages, self._progress.rows
        where = f"Page {pages} of {self._query.path}"
        if part.cursor in part.cursors:
            raise CursorLoop(f"{where} returned a cursor that was already used")
        if part.cursor is not None and len(part.cursor) > CURSOR_CHARS:
            raise ContractBroken(
                f"{where} returned a cursor of more than {CURSOR_CHARS} characters",
                expected="A cursor is sent in the address of the next request",
            )
        if part.pages_without_new_ids >= SLACK_PAGES:
            raise RunawayPaging(
                f"{where} is the third in a row without a new row, and names a next page"
            )
        most = PAGES_MAX * float(self._query.limit or 1)
        if part.total_first is not None:
            most = part.total_first * GROWTH + SLACK_PAGES * (self._query.limit or 50)
        if part.rows > most or pages >= PAGES_MAX:
            raise RunawayPaging(
                f"{where} names a next page, but {part.rows} rows arrived",
                expected=f"meta.total promised {part.total_first}",
            )
        bounds = self._caller.bounds
        if self._bytes > bounds.pull_bytes or rows > bounds.pull_rows:
            raise RunawayPaging(
                f"{where} names a next page, but {rows} rows in {self._bytes} bytes arrived",
                expected=(
                    f"No list has more than {bounds.pull_rows} rows or {bounds.pull_bytes} bytes"
                ),
            )

    def _annotate(self, error: CatalogError, part: PartProgress) -> None:
        if not isinstance(error, CursorLoop | RunawayPaging):
            self._requests += error.attempts
        pages, rows = self._progress.pages, self._progress.rows
        error.left = f"{pages} pages ({rows} rows) before it were delivered"
        error.cursor = part.cursor
        self._failure = f"{type(error).__name__}: {error.happened}"
