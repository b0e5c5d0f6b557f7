"""A list: paging to its end, and how far it is paged.

Iterate over a `Paginator` and journal each page. The progress follows from the pages alone. So the
process that requests them and a process that reads them from a journal agree: scopes are
requested in order, and if the service is too slow, two halves replace one scope.
"""

import hashlib
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Final

from catalog.contract import constants
from catalog.contract.bodies import read_list_body
from resources.errors import CatalogError, ContractBroken, TooSlow
from resources.http.response_body import decode_json_body, make_not_data_error, read_count
from resources.http.retry import Call, Caller
from resources.response import Answer
from resources.scopes import halve_dates, make_query
from warehouse.codecs import raw_text, storable_text
from warehouse.landing.batches import Feed, Scope

CURSOR_CHARS: Final = 4_096
"""A longer cursor is an error: it would not fit into a request."""
ROWS_FACTOR: Final = 4
ROWS_LEAST: Final = 1_000
"""A page may have ROWS_FACTOR times the requested rows, and in any case ROWS_LEAST, since a service
may not support small pages."""
SLACK_PAGES: Final = 3
"""The most pages beyond the total, or without a new row, before paging fails."""
GROWTH: Final = 1.1
"""How much a catalog may grow beyond its first total while it is paged."""
LEAST_LIMIT: Final = 5
_KEY_CHARS: Final = 200
_BOUNDS: Final = ("from", "to")


@dataclass(frozen=True, slots=True)
class PagedList:
    """A list of the interface: its path, and what identifies a row."""

    path: str
    key_fields: tuple[str, ...]


PAGED: Final[Mapping[Feed, PagedList]] = {
    "events": PagedList(constants.EVENTS_PATH, ("id",)),
    "cancellations": PagedList(constants.CANCELLATIONS_PATH, ("id", "cancelledAt")),
    "coins": PagedList(constants.COINS_PATH, ("slug",)),
    "categories": PagedList(constants.CATEGORIES_PATH, ("id",)),
}


@dataclass(frozen=True, slots=True)
class RawPage(Answer):
    """A page as the service sent it, with its parameters.

    `total` and the cursors are None if the page has none. `ids` has a key for every row, in order.
    """

    _: KW_ONLY
    params: Mapping[str, str]
    cursor_in: str | None
    cursor_out: str | None
    ids: tuple[str, ...] = field(repr=False)
    total: int | None
    is_open_ended: bool = False
    """Whether it is full, and has no `meta` that could name a next page."""

    @property
    def rows(self) -> int:
        return len(self.ids)


def read_page(
    answer: Answer, of: PagedList, params: Mapping[str, str], cursor: str | None = None
) -> RawPage:
    """Read a list's answer.

    Raises:
        TruncatedBody: it is not complete JSON.
        NotData: it is HTML, nothing, or JSON that is not a list.
        ContractBroken: it has far more rows than requested.
    """
    call, requested = f"GET {of.path}", int(params.get("limit", 0))
    content = decode_json_body(answer, call)
    found = read_list_body(content)
    if found is None:
        is_error = isinstance(content, dict) and ("error" in content or "message" in content)
        what = "an error under status 200" if is_error else "JSON that has no list in `data`"
        raise make_not_data_error(answer, call, "json", what)
    rows = len(found.rows)
    if rows > max(ROWS_LEAST, ROWS_FACTOR * requested):
        raise ContractBroken(
            f"{call} was answered with {rows} rows, expected were {requested or 'some'}"
        )
    return RawPage(
        *answer.fields(),
        answer.body,
        params=params,
        cursor_in=cursor,
        cursor_out=_cursor(found.cursor),
        ids=tuple(row_key(row, of.key_fields) for row in found.rows),
        total=read_count(found.total),
        is_open_ended=found.meta is None and 0 < requested <= rows,
    )


def row_key(row: Any, key_fields: tuple[str, ...]) -> str:
    """Return the key of a row: its key fields, or the whole row if one is missing."""
    values = [row.get(name) for name in key_fields] if isinstance(row, dict) else []
    if values and all(isinstance(value, str | int) for value in values):
        key = "\x1f".join(map(str, values))
    else:
        key = raw_text(row)
    is_short = len(key) <= _KEY_CHARS
    return key if is_short else hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def _cursor(value: Any) -> str | None:
    """Return a cursor as text; a cursor that is too long to be sent is cut."""
    if value is None or value == "" or isinstance(value, bool):
        return None
    text = value if isinstance(value, str) else raw_text(value)
    return storable_text(text[: CURSOR_CHARS + 1])[: CURSOR_CHARS + 1]


@dataclass(slots=True)
class PartProgress:
    """How far one scope is paged. `pages_without_new_ids` are in a row."""

    scope: Scope
    cursor: str | None = None
    ids: set[str] = field(default_factory=set)
    cursors: set[str] = field(default_factory=set)
    rows: int = 0
    pages_without_new_ids: int = 0
    total_first: int | None = None
    total_last: int | None = None

    def take(self, page: RawPage) -> None:
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

    def missing(self) -> int:
        """Return the number of missing rows, according to the smaller of the two totals."""
        if self.total_first is None or self.total_last is None:
            return 0
        return max(0, min(self.total_first, self.total_last) - len(self.ids))

    def is_next(self, page: RawPage) -> bool:
        own = make_query(self.scope)
        same = all(page.params.get(name) == own.get(name) for name in _BOUNDS)
        return same and page.cursor_in == self.cursor


class ListProgress:
    """How far the scopes of a list are paged; `rows` and `pages` include duplicates.

    A page that does not belong to these scopes sets `lost`: from then on the progress is not known.
    """

    def __init__(self, scopes: Sequence[Scope]) -> None:
        self._open = deque(PartProgress(scope) for scope in scopes)
        self._closed: list[PartProgress] = []
        self.rows = self.pages = 0
        self.lost = self._is_open_ended = False

    @property
    def current(self) -> PartProgress | None:
        """The part that is paged now; None at the end."""
        return self._open[0] if self._open else None

    def take(self, page: RawPage) -> None:
        """Count a page of the current part."""
        self.rows += page.rows
        self.pages += 1
        self._is_open_ended |= page.is_open_ended
        self._open[0].take(page)
        if page.cursor_out is None:
            self._closed.append(self._open.popleft())

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
        parts = halve_dates(self._open[0].scope)
        if parts is None:
            return False
        self._open.popleft()
        self._open.extendleft(PartProgress(half) for half in reversed(parts))
        return True

    @property
    def ended(self) -> bool:
        return not self._open and not self.lost

    @property
    def total_last(self) -> int | None:
        """The sum of the totals that each part's last page states; None if a part states none."""
        totals = [progress.total_last for progress in (*self._closed, *self._open)]
        known = [total for total in totals if total is not None]
        return sum(known) if known and len(known) == len(totals) and not self.lost else None

    def why_incomplete(self) -> str:
        """Return why these pages are not the whole list; empty if they are."""
        if self.lost:
            return "the pages do not form a sequence, so the rest is not known"
        if self._open:
            return "the list did not reach its end"
        if self._is_open_ended:
            return "a full page has no `meta` that could name a next page"
        missing = sum(progress.missing() for progress in self._closed)
        return f"{missing} rows that meta.total promised did not arrive" if missing else ""

    def _split_until_requested(self, page: RawPage) -> bool:
        while self._open:
            if self._open[0].is_next(page):
                return True
            if page.cursor_in is not None or not self.split():
                return False
        return False


@dataclass(eq=False, repr=False)
class Paginator:
    """Iterates over RawPage objects, in one thread. After a retryable error it can be iterated
    again.

    It continues `progress`, which may have pages of an earlier process. `limit` None sends none.
    `requests` counts those so far.
    """

    caller: Caller
    of: PagedList
    progress: ListProgress
    limit: int | None
    requests: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self._requested_limit = self.limit
        self._bytes = 0

    def __iter__(self) -> Iterator[RawPage]:
        """Yield pages until every part has ended.

        Raises:
            ContractBroken: a cursor was returned twice or is too long, or pages go on without end.
            CatalogError: any of the tree; `left` says what was yielded, `cursor` where it was.
        """
        while (part := self.progress.current) is not None:
            try:
                if fault := self._fault(part):
                    where = f"Page {self.progress.pages} of {self.of.path}"
                    raise ContractBroken(f"{where} names a next page, but {fault}")
                page = self._next_page(part)
            except CatalogError as error:
                pages, rows = self.progress.pages, self.progress.rows
                error.left = f"{pages} pages ({rows} rows) before it were delivered"
                error.cursor = part.cursor
                raise
            if page is not None:
                self.progress.take(page)
                self._bytes += len(page.body)
                self.requests += page.attempts
                yield page

    def _next_page(self, part: PartProgress) -> RawPage | None:
        """Fetch the next page, with a smaller limit if it is too slow; None after a split."""
        while True:
            try:
                return self._fetch(part)
            except CatalogError as error:
                self.requests += error.attempts
                if not isinstance(error, TooSlow):
                    raise
                if self.limit is not None and self.limit > LEAST_LIMIT:
                    self.limit = max(LEAST_LIMIT, self.limit // 2)
                elif self.progress.split():
                    return None
                else:
                    raise

    def _fetch(self, part: PartProgress) -> RawPage:
        params, cursor = make_query(part.scope), part.cursor
        if self.limit is not None:
            params["limit"] = str(self.limit)
        if cursor is not None:
            params["cursor"] = cursor
        return self.caller.get(
            Call(self.of.path, params), lambda answer: read_page(answer, self.of, params, cursor)
        )

    def _fault(self, part: PartProgress) -> str:
        """Return why the next page is not requested; empty if it may be."""
        if part.cursor in part.cursors:
            return "its cursor was already used"
        if part.cursor is not None and len(part.cursor) > CURSOR_CHARS:
            return f"its cursor has more than {CURSOR_CHARS} characters"
        if part.pages_without_new_ids >= SLACK_PAGES:
            return "it is the third in a row without a new row"
        if part.total_first is not None:
            limit = self._requested_limit or constants.EVENTS_LIMIT_MAX
            if part.rows > part.total_first * GROWTH + SLACK_PAGES * limit:
                return f"{part.rows} rows arrived, and meta.total promised {part.total_first}"
        rows, bounds = self.progress.rows, self.caller.bounds
        if self._bytes > bounds.pull_bytes or rows > bounds.pull_rows:
            return f"{rows} rows in {self._bytes} bytes arrived: no list has as many"
        return ""
