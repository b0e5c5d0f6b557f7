"""A list: its query, how it splits into smaller parts, and paging to its end.

Iterate over a `Paginator` and journal each page; then ask whether it is complete. After an error
that allows to continue (Defer, RetryLater), iterate again, or make a new paginator from
`progress.remaining`. The pages alone show how far a list is paged, so the process that requests
them and a process that reads them back from a journal agree: parts are requested in order, and if
the service is too slow, two halves replace one part.
"""

import hashlib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time, timedelta
from itertools import product
from typing import TYPE_CHECKING, Any, Final

from catalog.contract import constants
from catalog.contract.bodies import list_body
from resources.answers import Answer
from resources.errors import CatalogError, ContractBroken, TooLarge, TooSlow
from resources.http.bodies import decoded_json, not_data, read_count
from warehouse.codecs import raw_text, storable_text

if TYPE_CHECKING:
    from resources.http.retry import Caller

CURSOR_CHARS: Final = 4_096
"""A longer cursor is an error: it would not fit into a request."""
ROWS_FACTOR: Final = 4
ROWS_LEAST: Final = 1_000
"""A page may have ROWS_FACTOR times the requested rows, and in any case ROWS_LEAST, since a service
may not support small pages."""
SLACK_PAGES: Final = 3
"""Pages beyond the total, or without a new row, after which paging is an error."""
GROWTH: Final = 1.1
"""How much a catalog may grow beyond its first total while it is paged."""
LEAST_LIMIT: Final = 5
_KEY_CHARS: Final = 200
_BOUNDS: Final = ("from", "to")
_SECOND: Final = timedelta(seconds=1)
_LAST_SECOND_OF_DAY: Final = time(23, 59, 59, tzinfo=UTC)

DateBound = date | datetime | None
"""A bound of a range of dates, inclusive: a day, an aware time, or none."""
Validators = Mapping[str, str]
"""The header `If-None-Match` or `If-Modified-Since`, by which a service can answer 304."""


def bound_text(bound: date | datetime) -> str:
    """Return a bound as it is sent: `YYYY-MM-DD`, or RFC 3339 in UTC.

    Raises:
        ValueError: a time without a zone, which could mean any of 26 hours.
    """
    if not isinstance(bound, datetime):
        return bound.isoformat()
    if bound.tzinfo is None:
        raise ValueError(f"{bound} has no zone; give an aware time, or a date")
    return bound.astimezone(UTC).isoformat(timespec="auto").replace("+00:00", "Z")


@dataclass(frozen=True, slots=True)
class DateRange:
    """A range of event dates, both bounds inclusive; None leaves the bound to the service."""

    lower: DateBound = None
    upper: DateBound = None

    def params(self) -> dict[str, str]:
        bounds = zip(_BOUNDS, (self.lower, self.upper), strict=True)
        return {name: bound_text(bound) for name, bound in bounds if bound is not None}

    def halves(self) -> tuple["DateRange", "DateRange"] | None:
        """Return the two halves, or None if it has an open end or can't be split further."""
        if self.lower is None or self.upper is None:
            return None
        are_days = not isinstance(self.lower, datetime) and not isinstance(self.upper, datetime)
        if are_days and self.lower < self.upper:
            day = self.lower + (self.upper - self.lower) // 2
            return DateRange(self.lower, day), DateRange(day + timedelta(days=1), self.upper)
        lower, upper = _at(self.lower, time(tzinfo=UTC)), _at(self.upper, _LAST_SECOND_OF_DAY)
        middle = (lower + (upper - lower) / 2).replace(microsecond=0)
        if not lower <= middle < upper:
            return None
        return DateRange(lower, middle), DateRange(middle + _SECOND, upper)


def _at(bound: date | datetime, at: time) -> datetime:
    return bound if isinstance(bound, datetime) else datetime.combine(bound, at)


@dataclass(frozen=True, slots=True)
class ListPart:
    """One list to page through: its filters, its dates, and where to begin."""

    filters: Mapping[str, str] = field(default_factory=dict)
    span: DateRange = DateRange()
    cursor: str | None = None

    def params(self) -> dict[str, str]:
        return {**self.filters, **self.span.params()}


def event_filters(
    coins: Sequence[str] | None = None,
    categories: Sequence[str] | None = None,
) -> Iterator[dict[str, str]]:
    """Yield the filters of one or more lists that together are what is requested.

    Coins and categories are split into batches, as large as the interface allows.

    Raises:
        ValueError: an empty sequence, which would filter out nothing; None means all.
    """
    for name, values in (("coins", coins), ("categories", categories)):
        if isinstance(values, str) or (values is not None and not (values and all(values))):
            raise ValueError(f"{name} must be a sequence of identifiers, or None for all")
    coin_batches = split_names(coins, constants.COIN_SLUGS_MAX)
    category_batches = split_names(categories, constants.CATEGORY_IDS_MAX)
    for coin_batch, category_batch in product(coin_batches, category_batches):
        named = {"coins": coin_batch, "categories": category_batch}
        yield {name: ",".join(batch) for name, batch in named.items() if batch is not None}


def split_names(values: Sequence[str] | None, size: int) -> list[tuple[str, ...] | None]:
    """Return a filter in batches that one request can take; None means no filter."""
    if values is None:
        return [None]
    distinct = tuple(dict.fromkeys(values))
    return [distinct[at : at + size] for at in range(0, len(distinct), size)]


@dataclass(frozen=True, slots=True)
class RawPage:
    """A page as the service sent it, with its parameters and its headers.

    `body` is decompressed. `total`, `limit` and the cursors are None if the page has none. `ids`
    has a key for every row, in order. `date` is the service's time, `date_doubt` the reason if it
    is not the Date of the response. `attempts` counts the requests sent.
    """

    params: Mapping[str, str]
    cursor_in: str | None
    cursor_out: str | None
    body: bytes = field(repr=False)
    ids: tuple[str, ...] = field(repr=False)
    total: int | None
    limit: int | None
    headers: dict[str, str] = field(repr=False)
    date: datetime
    date_doubt: str
    attempts: int
    is_open_ended: bool = False
    """Whether it is full, and has no `meta` that could name a next page."""

    @property
    def rows(self) -> int:
        return len(self.ids)


def read_page(
    answer: Answer,
    *,
    path: str,
    params: Mapping[str, str],
    cursor: str | None,
    key_fields: tuple[str, ...],
) -> RawPage:
    """Read a list's answer.

    Raises:
        TruncatedBody: it is not complete JSON.
        NotData: it is HTML, nothing, or JSON that is not a list.
        TooLarge: it has far more rows than requested.
    """
    call, requested = f"GET {path}", int(params.get("limit", 0))
    content = decoded_json(answer, call)
    found = list_body(content)
    if found is None:
        is_error = isinstance(content, dict) and ("error" in content or "message" in content)
        what = "an error under status 200" if is_error else "JSON that has no list in `data`"
        raise not_data(answer, call, "json", what)
    rows = len(found.rows)
    if rows > max(ROWS_LEAST, ROWS_FACTOR * requested):
        raise TooLarge(f"{call} was answered with {rows} rows, expected were {requested or 'some'}")
    return RawPage(
        params=params,
        cursor_in=cursor,
        cursor_out=_cursor(found.cursor),
        body=answer.body,
        ids=tuple(row_key(row, key_fields) for row in found.rows),
        total=read_count(found.total),
        limit=read_count(found.limit),
        headers=answer.headers,
        date=answer.date,
        date_doubt=answer.date_doubt,
        attempts=answer.attempts,
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
    """How far one part is paged. `pages_without_new_ids` are in a row."""

    part: ListPart
    cursor: str | None = None
    ids: set[str] = field(default_factory=set)
    cursors: set[str] = field(default_factory=set)
    rows: int = 0
    pages_without_new_ids: int = 0
    total_first: int | None = None
    total_last: int | None = None

    def take(self, page: RawPage) -> None:
        """Count a page of this part."""
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


class Paginator:
    """An iterable of RawPage, to be iterated once, in one thread.

    `key_fields` identify a row; `limit` None sends none. With `validators` a service may answer 304
    to the first page. `known_ids` are the ids of journaled rows of the part that begins at a
    cursor: with them `why_incomplete` is about the whole list, without them only about the rest.
    `requests` counts those so far; it may be read while another thread pages.
    """

    def __init__(
        self,
        caller: "Caller",
        path: str,
        parts: Sequence[ListPart],
        key_fields: tuple[str, ...],
        limit: int | None,
        *,
        validators: Validators | None = None,
        known_ids: Iterable[str] = (),
    ) -> None:
        known = set(known_ids)
        self.progress = ListProgress(parts, known_ids=known)
        self.requests = 0
        self._caller = caller
        self._path = path
        self._key_fields = key_fields
        self._limit = self._requested_limit = limit
        self._validators = validators
        self._resumed_blind = not known and any(part.cursor for part in parts)
        self._bytes = 0
        self._failure = ""

    def __iter__(self) -> Iterator[RawPage]:
        """Yield pages until every part has ended.

        Raises:
            NotModified: the first page was answered 304, so the whole list is unchanged.
            ContractBroken: a cursor was returned twice or is too long, or pages go on without end.
            CatalogError: any of the tree; `left` says what was yielded, `cursor` where it was.
        """
        self._failure = ""
        while (part := self.progress.current) is not None:
            try:
                if fault := self._fault(part):
                    where = f"Page {self.progress.pages} of {self._path}"
                    raise ContractBroken(f"{where} names a next page, but {fault}")
                page = self._next_page(part)
            except CatalogError as error:
                pages, rows = self.progress.pages, self.progress.rows
                error.left = f"{pages} pages ({rows} rows) before it were delivered"
                error.cursor = part.cursor
                self._failure = f"{type(error).__name__}: {error.happened}"
                raise
            if page is not None:
                self.progress.take(page)
                self._bytes += len(page.body)
                self.requests += page.attempts
                yield page

    @property
    def why_incomplete(self) -> str:
        """Why the pages so far are not the whole list; empty if they are."""
        if self._failure and not self.progress.ended:
            return self._failure
        if self._resumed_blind and self.progress.ended:
            return "it started at a cursor, and the rows before it are not known here"
        return self.progress.why_incomplete()

    def _next_page(self, part: PartProgress) -> RawPage | None:
        """Fetch the next page, with a smaller limit if it is too slow; None after a split."""
        while True:
            try:
                return self._fetch(part)
            except CatalogError as error:
                self.requests += error.attempts
                if not isinstance(error, TooSlow):
                    raise
                if self._limit is not None and self._limit > LEAST_LIMIT:
                    self._limit = max(LEAST_LIMIT, self._limit // 2)
                elif self.progress.split():
                    return None
                else:
                    raise

    def _fetch(self, part: PartProgress) -> RawPage:
        # Imported here, since `almanac status` knows lists and needs no client.
        from resources.http.retry import Call

        params, cursor = part.part.params(), part.cursor
        if self._limit is not None:
            params["limit"] = str(self._limit)
        if cursor is not None:
            params["cursor"] = cursor
        # Validators are of the whole list: a later page would be compared with its first one.
        is_first = cursor is None and self.progress.pages == 0
        return self._caller.get(
            Call(self._path, params, headers=self._validators if is_first else None),
            lambda answer: read_page(
                answer, path=self._path, params=params, cursor=cursor, key_fields=self._key_fields
            ),
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
        rows, bounds = self.progress.rows, self._caller.bounds
        if self._bytes > bounds.pull_bytes or rows > bounds.pull_rows:
            return f"{rows} rows in {self._bytes} bytes arrived: no list has as many"
        return ""
