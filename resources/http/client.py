"""The client of the catalog: one method per endpoint (interface section 4).

    with CatalogClient("https://api.example.com", key, limiter=limiter) as client:
        paginator = client.events_pages(date(2026, 3, 1), date(2026, 3, 31))
        for page in paginator:
            journal(page.body)
        assert paginator.report.complete

The bulk export is streamed into a file and checked on the way (interface 4.8). A broken export is
retried, then an error. An export that only looks truncated is reported, since the merge knows
better how many rows to expect. The file is kept in both cases.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from functools import reduce
from http.cookiejar import CookieJar, DefaultCookiePolicy
from pathlib import Path
from typing import Final
from urllib.parse import quote

import httpx
from pydantic import SecretStr

from almanac.reading.csv_file import CsvFault, RecordReader, read_chunks
from catalog.contract import constants
from resources.errors import (
    ContractBroken,
    Evidence,
    NotData,
    NotDataKind,
    PlanLacksAccess,
    TruncatedBody,
)
from resources.http.bodies import (
    COIN_STATUSES,
    EVENT_STATUSES,
    CoinAnswer,
    EventAnswer,
    UsageAnswer,
    read_coin,
    read_event,
    read_page,
    read_usage,
    rows_requested,
)
from resources.http.calls import (
    BodyReader,
    Bounds,
    Caller,
    InspectedAnswer,
    ResponseHead,
    Timeouts,
    inspect_answer,
    make_evidence,
)
from resources.http.list_query import DateBound, DateRange, ListPart, bound_text, event_filters
from resources.http.lists import ListQuery, Paginator, Validators
from resources.http.network import DIRECT, Network, Proxy
from resources.http.redaction import Redactor, redactor_for
from resources.http.responses import looks_like_html
from resources.http.transport import DeadlineTransport, KeyTransport, Observer
from resources.limits.limiter import Limiter
from resources.service_address import checked_base_url, checked_key
from resources.service_clock import ServiceClock, read_http_date
from resources.waits import Ambient, RetryPolicy
from warehouse.codecs import detect_kind

_HEAD_BYTES: Final = 65_536
_STATUSES: Final = frozenset({200, 304})
_INSPECTED: Final = frozenset(range(100, 600)) - {429}


@dataclass(frozen=True, slots=True)
class ExportPull:
    """A pulled export. `rows` leaves the header out.

    With `not_modified` (304) the copy with the given validators is still valid, and nothing was
    written. `suspicions` are the reasons why it looks truncated. `last_modified` is None if absent.
    """

    not_modified: bool
    rows: int
    etag: str | None
    last_modified: datetime | None
    date: datetime
    date_doubt: str
    headers: dict[str, str] = field(repr=False)
    attempts: int
    suspicions: tuple[str, ...]


def pull_export(
    caller: Caller,
    into: Path,
    *,
    path: str,
    params: Mapping[str, str],
    max_bytes: int,
    max_ratio: float,
    total_s: float,
    rows_expected: int | None = None,
    validators: Validators | None = None,
) -> ExportPull:
    """Stream the export into the file `into`; each attempt writes it anew.

    Raises:
        NotData: HTML, JSON, nothing, or a header without rows (unless none are expected).
        TruncatedBody: it ends inside quotes or inside a record, or the transfer broke.
        TooLarge: over `max_bytes`, or `max_ratio` times the bytes sent.
        TooSlow: it exceeded the service's 30 s: request half of the dates.
        CatalogError: any other of the tree.
    """
    conditional = {} if validators is None else validators.headers()

    def read(response: httpx.Response, opened: ResponseHead) -> ExportPull:
        pull = _Pull(into, path, opened, rows_expected)
        if opened.status == 200:
            into.unlink(missing_ok=True)
            pull.write(BodyReader(response, max_bytes=max_bytes, max_ratio=max_ratio))
            pull.check()
        return pull.result()

    statuses = _STATUSES if conditional else _STATUSES - {304}
    return caller.stream(
        path,
        params,
        read,
        statuses=statuses,
        headers=conditional,
        total_s=total_s,
        for_export=True,
    )


class _Pull:
    """One attempt."""

    def __init__(
        self, into: Path, path: str, opened: ResponseHead, rows_expected: int | None
    ) -> None:
        self._into = into
        self._call = f"GET {path}"
        self._opened = opened
        self._rows_expected = rows_expected
        self._reader = RecordReader(())
        self._head = b""

    def write(self, body: BodyReader) -> None:
        with self._into.open("wb") as file:
            for piece in body:
                file.write(piece)
                if len(self._head) < _HEAD_BYTES:
                    self._head += piece[: _HEAD_BYTES - len(self._head)]
        self._reader = RecordReader(read_chunks(self._into))
        with suppress(CsvFault):  # It is longer than a record may be, which the merge reports.
            self._reader.count()

    def check(self) -> None:
        """Raise if it is not CSV of events, or certainly truncated."""
        content_type = self._opened.headers.get("content-type", "")
        form = detect_kind(self._head)
        if form == "empty":
            raise self._not_data("empty", "an empty body")
        if looks_like_html(self._head, content_type):
            raise self._not_data("html", "an HTML page")
        if form == "json":
            kind: NotDataKind = "json_error" if b'"error"' in self._head else "json"
            raise self._not_data(kind, "JSON")
        if self._reader.is_open:
            raise self._truncated("inside quotes")
        if not self._reader.ends_with_line_end and self._last_record_is_short():
            raise self._truncated("inside a record")
        if self._rows == 0 and self._rows_expected != 0:
            raise self._not_data("bare_header", "a header without rows")

    def result(self) -> ExportPull:
        opened = self._opened
        return ExportPull(
            not_modified=opened.status == 304,
            rows=self._rows,
            etag=opened.headers.get("etag"),
            last_modified=read_http_date(opened.headers.get("last-modified")),
            date=opened.date,
            date_doubt=opened.date_doubt,
            headers=opened.headers,
            attempts=opened.attempts,
            suspicions=self._suspicions() if opened.status == 200 else (),
        )

    @property
    def _rows(self) -> int:
        return max(0, self._reader.records - 1)

    def _last_record_is_short(self) -> bool:
        header = next(iter(RecordReader((self._head,))), None)
        return header is not None and self._reader.last_fields < len(header.cells)

    def _suspicions(self) -> tuple[str, ...]:
        found: list[str] = []
        if not self._reader.ends_with_line_end:
            found.append("the last line has no line end")
        if self._last_record_is_short():
            found.append("the last record has too few fields")
        if self._rows_expected is not None and self._rows < self._rows_expected:
            found.append(f"{self._rows} rows of {self._rows_expected} expected")
        return tuple(found)

    def _evidence(self) -> Evidence:
        return replace(make_evidence(self._opened), file=self._into)

    def _not_data(self, kind: NotDataKind, what: str) -> NotData:
        return NotData(
            f"{self._call} was answered with {what}",
            kind=kind,
            expected="Expected was CSV with a header and rows",
            evidence=self._evidence(),
        )

    def _truncated(self, where: str) -> TruncatedBody:
        return TruncatedBody(
            f"{self._call}: the CSV ends {where}, after {self._rows} rows",
            evidence=self._evidence(),
        )


_USER_AGENT = "crypto-almanac"


class CatalogClient:
    """Reads the catalog over HTTP. Thread-safe: several lists may be paged in parallel.

    `base_url` is with or without `/v2`. `page_size` is the most events or cancellations that a page
    is asked for. Every request waits for `limiter` first. `observer` is
    called after each attempt. `extra_headers` are sent with every request, and read each time.
    `network` has proxy and certificates. `transport` replaces it, but not key, limiter and count.
    `service_clock` records the Date of every response; None is a clock of its own that accepts any.
    """

    def __init__(
        self,
        base_url: str,
        key: SecretStr | str,
        *,
        limiter: Limiter,
        ambient: Ambient | None = None,
        policy: RetryPolicy | None = None,
        timeouts: Timeouts | None = None,
        bounds: Bounds | None = None,
        export_path: str = constants.EXPORT_PATH,
        page_size: int = constants.EVENTS_LIMIT_MAX,
        extra_headers: Mapping[str, str] | None = None,
        observer: Observer | None = None,
        transport: httpx.BaseTransport | None = None,
        service_clock: ServiceClock | None = None,
        network: Network = DIRECT,
    ) -> None:
        environment = ambient or Ambient()
        self.service_clock = service_clock or ServiceClock(environment.clock, max_skew=None)
        self.base_url = checked_base_url(base_url)
        self.export_path = "/" + export_path.lstrip("/")
        self._page_size = page_size
        self._timeouts = timeouts or Timeouts()
        self._limiter = limiter
        self._stop_retrying = environment.stop_retrying
        secret = checked_key(key)
        redactor = redactor_for(secret)
        inner = transport or DeadlineTransport(self.base_url, network)
        proxy = inner.proxy if isinstance(inner, DeadlineTransport) else None
        keyed = KeyTransport(
            inner,
            key=secret,
            origin=httpx.URL(self.base_url),
            limiter=limiter,
            observer=observer,
            monotonic=environment.monotonic,
            redactor=redactor,
        )
        self._http = httpx.Client(
            base_url=self.base_url,
            transport=keyed,
            headers={"Accept-Encoding": "identity", "User-Agent": _USER_AGENT},
            # A cookie jar would store and send back whatever a service sets.
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
            trust_env=False,
            follow_redirects=False,
        )
        self._caller = Caller(
            self._http,
            limiter=limiter,
            policy=policy or RetryPolicy(),
            ambient=environment,
            timeouts=self._timeouts,
            bounds=bounds or Bounds(),
            redact=_redact_all(redactor, proxy),
            proxy=proxy,
            extra_headers={} if extra_headers is None else extra_headers,
            service_clock=self.service_clock,
        )

    def __repr__(self) -> str:
        return f"CatalogClient({self.base_url!r})"

    def __enter__(self) -> "CatalogClient":
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    @contextmanager
    def stop_retrying(self) -> Iterator[None]:
        """Do not retry and do not wait for a token inside this context, in any thread.

        If the context ends with an exception, that stays so: the client is not used again.
        """
        self._stop_retrying.set()
        self._limiter.no_wait(on=True)
        yield
        self._limiter.no_wait(on=False)
        self._stop_retrying.clear()

    @property
    def deprecation(self) -> str | None:
        """The last `Deprecation` header received: this version will end."""
        return self._caller.deprecation

    @property
    def sunset(self) -> str | None:
        """The last `Sunset` header received: when this version ends."""
        return self._caller.sunset

    def events_pages(
        self,
        from_: DateBound = None,
        to: DateBound = None,
        *,
        coins: Sequence[str] | None = None,
        categories: Sequence[str] | None = None,
        limit: int = constants.EVENTS_LIMIT_MAX,
    ) -> Paginator:
        """Return a paginator of the events between two inclusive bounds (interface 4.3).

        Without bounds the service uses today and the plan's horizon. More than a hundred coins
        or categories become several lists.

        Raises:
            ValueError: a naive time, or an empty filter.
        """
        span = DateRange(from_, to)
        parts = [ListPart(filter, span) for filter in event_filters(coins, categories)]
        return self.resume_events(parts, limit=limit)

    def resume_events(
        self,
        parts: Sequence[ListPart],
        *,
        limit: int = constants.EVENTS_LIMIT_MAX,
        known_ids: Iterable[str] = (),
    ) -> Paginator:
        """Return a paginator of the parts that another one has left (`Paginator.remaining`)."""
        return self._paginator(constants.EVENTS_PATH, tuple(parts), ("id",), limit, known_ids)

    def cancellations_pages(
        self,
        since: date | datetime | None = None,
        *,
        limit: int = constants.EVENTS_LIMIT_MAX,
        cursor: str | None = None,
        known_ids: Iterable[str] = (),
    ) -> Paginator:
        """Return a paginator of the cancellations since a time, inclusive; default 90 days."""
        filters = {} if since is None else {"since": bound_text(since)}
        parts = (ListPart(filters, cursor=cursor),)
        fields = ("id", "cancelledAt")
        return self._paginator(constants.CANCELLATIONS_PATH, parts, fields, limit, known_ids)

    def coins_pages(
        self,
        *,
        limit: int = constants.COINS_LIMIT_MAX,
        cursor: str | None = None,
        known_ids: Iterable[str] = (),
    ) -> Paginator:
        """Return a paginator of the coins, top-ranked first (interface 4.1)."""
        parts = (ListPart(cursor=cursor),)
        return self._paginator(constants.COINS_PATH, parts, ("slug",), limit, known_ids)

    def categories(self, validators: Validators | None = None) -> Paginator:
        """Return a paginator of the categories, mostly one page (interface 4.6).

        Iterating raises AccessDenied if the service refuses them: continue without. With
        `validators` it raises NotModified if the response with these validators is still valid.
        """
        query = ListQuery(
            constants.CATEGORIES_PATH, (ListPart(),), ("id",), None, validators or Validators()
        )
        return Paginator(self._caller, query)

    def event(self, event_id: str) -> EventAnswer:
        """Look up one event: found, gone (cancelled) or not found (interface 4.4).

        Raises:
            ValueError: an id that can't stand in a path.
            CatalogError: any of the tree.
        """
        if event_id in ("", ".", ".."):
            raise ValueError(f"{event_id!r} is not an event id")
        path = f"{constants.EVENTS_PATH}/{quote(event_id, safe='')}"
        return self._caller.get(
            path,
            {},
            lambda answer: read_event(answer, event_id=event_id, call=f"GET {path}"),
            statuses=EVENT_STATUSES,
        )

    def coin(self, slug: str) -> CoinAnswer:
        """Look up one coin: found, unknown, or not covered by the plan (interface 4.2).

        Raises:
            ValueError: a slug that can't stand in a path.
            CatalogError: any of the tree but PlanLacksAccess.
        """
        if slug in ("", ".", ".."):
            raise ValueError(f"{slug!r} is not a slug")
        path = f"{constants.COINS_PATH}/{quote(slug, safe='')}"
        try:
            return self._caller.get(
                path,
                {},
                lambda answer: read_coin(answer, slug=slug, call=f"GET {path}"),
                statuses=COIN_STATUSES,
            )
        except PlanLacksAccess:
            return CoinAnswer(slug, "not_covered")

    def usage(self) -> UsageAnswer:
        """Return the key's usage, and pass it to the limiter; the call itself counts (4.7)."""
        path, before = constants.USAGE_PATH, self._limiter.sent()
        answer = self._caller.get(
            path, {}, lambda answer: read_usage(answer, call=f"GET {path}"), for_usage=True
        )
        self._adopt_usage(answer, before)
        return answer

    def _adopt_usage(self, usage: UsageAnswer, sent_before: int) -> None:
        self._limiter.on_stated_pace(usage.rate, usage.burst)
        if usage.account is not None:
            self._limiter.on_usage(usage.account, sent_before=sent_before)

    def inspect(
        self,
        path: str,
        params: Mapping[str, str],
        *,
        headers: Mapping[str, str] | None = None,
        most_bytes: int,
        for_usage: bool = False,
        for_export: bool = False,
    ) -> InspectedAnswer:
        """Return the response of any status but 429, with at most so many bytes of its body.

        A usage is passed to the limiter. An export that is not found starts no export interval.

        Raises:
            CatalogError: 429, or no complete response.
        """
        before = self._limiter.sent()

        def read(response: httpx.Response, opened: ResponseHead) -> InspectedAnswer:
            return inspect_answer(response, opened, most_bytes)

        found = self._caller.stream(
            path,
            params,
            read,
            statuses=_INSPECTED,
            headers=headers,
            for_usage=for_usage,
            for_export=for_export,
        )
        if for_export and found.status not in (200, 429):
            self._limiter.on_no_export()
        if for_usage and found.status == 200 and not found.fault:
            with suppress(ContractBroken):
                self._adopt_usage(read_usage(found, call=f"GET {path}"), before)
        return found

    def events_total(
        self,
        from_: DateBound = None,
        to: DateBound = None,
        *,
        coins: Sequence[str] | None = None,
        categories: Sequence[str] | None = None,
    ) -> int | None:
        """Return how many events lie between two bounds, for one request; None if not reported."""
        params = {**_one_list(coins, categories), **DateRange(from_, to).params(), "limit": "1"}
        path = constants.EVENTS_PATH
        return self._caller.get(
            path,
            params,
            lambda answer: (
                read_page(answer, path=path, params=params, cursor=None, key_fields=("id",)).total
            ),
            rows=rows_requested(params),
        )

    def export(
        self,
        into: Path,
        from_: DateBound = None,
        to: DateBound = None,
        *,
        coins: Sequence[str] | None = None,
        categories: Sequence[str] | None = None,
        rows_expected: int | None = None,
        validators: Validators | None = None,
    ) -> ExportPull:
        """Stream the bulk export into a file (interface 4.8); see `export_download.pull_export`.

        Without bounds it has the plan's whole window. With `validators` a 304 writes nothing.
        """
        bounds = self._caller.bounds
        return pull_export(
            self._caller,
            into,
            path=self.export_path,
            params={**_one_list(coins, categories), **DateRange(from_, to).params()},
            max_bytes=bounds.export_bytes,
            max_ratio=bounds.ratio,
            total_s=self._timeouts.export_total,
            rows_expected=rows_expected,
            validators=validators,
        )

    def _paginator(
        self,
        path: str,
        parts: tuple[ListPart, ...],
        key_fields: tuple[str, ...],
        limit: int | None,
        known_ids: Iterable[str],
    ) -> Paginator:
        is_default = limit == constants.EVENTS_LIMIT_MAX
        if is_default and path != constants.COINS_PATH:
            limit = self._page_size
        return Paginator(
            self._caller, ListQuery(path, parts, key_fields, limit), known_ids=known_ids
        )


def _redact_all(redactor: Redactor, proxy: Proxy | None) -> Callable[[str], str]:
    """Return a function that removes the key and the secrets of the proxy from a message."""
    redactors = [redactor, *(() if proxy is None else map(redactor_for, proxy.secrets))]
    return lambda text: reduce(lambda shown, redact: redact(shown), redactors, text)


def _one_list(coins: Sequence[str] | None, categories: Sequence[str] | None) -> dict[str, str]:
    filters = list(event_filters(coins, categories))
    if len(filters) > 1:
        raise ValueError(
            "more coins or categories than one request can name; request them in batches"
        )
    return filters[0]
