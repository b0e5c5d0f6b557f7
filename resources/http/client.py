"""The client of the catalog: one method per endpoint (interface section 4).

    with CatalogClient("https://api.example.com", key, limiter=limiter) as client:
        progress = ListProgress(split_filters(scope))
        for page in client.pages("events", progress):
            journal(page.body)
        assert not progress.why_incomplete()

`catalog/contract/bodies.py` defines the accepted forms of responses.
"""

import codecs
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from http.cookiejar import CookieJar, DefaultCookiePolicy
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import quote

import httpx
from pydantic import SecretStr

from almanac.core.errors import InvalidArgument
from almanac.reading.csv_file import CsvFault, RecordReader, count_plain_records, read_chunks
from almanac.user_files import find_header
from catalog.contract import constants
from catalog.contract.bodies import read_single_body, read_usage_fields
from resources.credentials import Redactor, check_base_url, check_key, conceal_in_logs
from resources.errors import CatalogError, PlanLacksAccess, RequestRejected, TruncatedBody
from resources.http.network import DIRECT, Network
from resources.http.paginator import PAGED, ListProgress, Paginator, read_page
from resources.http.response_body import (
    Body,
    Bounds,
    decode_object_body,
    looks_like_html,
    make_not_data_error,
    read_count,
    read_instant,
)
from resources.http.retry import (
    OK,
    RETIRED,
    Call,
    Caller,
    OriginKey,
    RetryPolicy,
    Timeouts,
    Timing,
    read_error_body,
)
from resources.limits.limiter import Limiter
from resources.request_log import Observer, ReportedUsage
from resources.response import Answer, ResponseHead
from resources.scopes import make_query
from resources.service_clock import ServiceClock
from warehouse.codecs import UnreadableBody, as_utf8, detect_kind, storable_text
from warehouse.landing.batches import Feed, Scope

_INSPECTED: Final = frozenset(range(100, 600)) - {429}
_LOOKED_UP: Final = frozenset({200, 404, 410})
_TEXT_CHARS: Final = 200
_COUNTED_AT_ONCE: Final = 64 << 20
"""Bytes of an export up to which its records are counted in memory, in a fifth of the time."""
CoinStatus = Literal["found", "untracked", "unknown", "not_covered"]
NOT_MODIFIED: Final = 304


@dataclass(frozen=True, slots=True)
class InspectedResponse(Answer):
    """A response of any status. `fault` is why the body can't be read to its end, empty if it can.

    `is_cut` is whether the body was longer than what was read; the rest was not received.
    """

    is_cut: bool = False
    fault: str = ""


@dataclass(frozen=True, slots=True)
class ExportPull(ResponseHead):
    """A pulled export. `rows` leaves the header out.

    `suspicions` are the reasons why it looks truncated.
    """

    rows: int = 0
    suspicions: tuple[str, ...] = ()


class CatalogClient:
    """Reads the catalog over HTTP. Thread-safe: several lists may be paged in parallel.

    `base_url` is with or without `/v2`. `export_columns` has the field of each column of the export
    with another name; `page_size` is the most events or cancellations that a page is asked for.
    Every request waits for `limiter` first. `observer` is called after each attempt.
    `extra_headers` are sent with every request, and read each time. `network` has proxy and
    certificates; `transport` replaces the network. `service_clock` records the Date of every
    response; None is a clock of its own that accepts any.
    """

    def __init__(
        self,
        base_url: str,
        key: SecretStr | str,
        *,
        limiter: Limiter,
        timing: Timing | None = None,
        policy: RetryPolicy | None = None,
        timeouts: Timeouts | None = None,
        bounds: Bounds | None = None,
        export_path: str = constants.EXPORT_PATH,
        export_columns: Mapping[str, str] | None = None,
        page_size: int = constants.EVENTS_LIMIT_MAX,
        extra_headers: Mapping[str, str] | None = None,
        observer: Observer | None = None,
        transport: httpx.BaseTransport | None = None,
        service_clock: ServiceClock | None = None,
        network: Network = DIRECT,
    ) -> None:
        environment = timing or Timing()
        self.service_clock = service_clock or ServiceClock(environment.clock, max_skew=None)
        self.base_url = check_base_url(base_url)
        self.export_path = "/" + export_path.lstrip("/")
        self.export_columns = dict(export_columns or {})
        self._page_size = page_size
        self._limiter = limiter
        secret = check_key(key)
        conceal_in_logs(secret)
        self._http = network.http_client(
            base_url=self.base_url,
            transport=transport,
            auth=OriginKey(secret, self.base_url),
            headers={"Accept-Encoding": "identity", "User-Agent": "crypto-almanac"},
            # A cookie jar would store and send back whatever a service sets.
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
            follow_redirects=False,
        )
        self._caller = Caller(
            self._http,
            limiter=limiter,
            policy=policy or RetryPolicy(),
            timing=environment,
            timeouts=timeouts or Timeouts(),
            bounds=bounds or Bounds(),
            redact=Redactor(secret),
            extra_headers={} if extra_headers is None else extra_headers,
            service_clock=self.service_clock,
            observer=observer,
        )

    def __enter__(self) -> "CatalogClient":
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def pages(self, feed: Feed, progress: ListProgress) -> Paginator:
        """Return a paginator that continues a list (interface 4.1, 4.3, 4.5, 4.6)."""
        limits = {"coins": constants.COINS_LIMIT_MAX, "categories": None}
        limit = limits.get(feed, self._page_size)
        return Paginator(self._caller, PAGED[feed], progress, limit)

    def event(self, event_id: str) -> Answer:
        """Look up one event: found (200), not found (404) or cancelled (410), by its status (4.4).

        Raises:
            ValueError: an id that can't stand in a path.
            CatalogError: any of the tree.
        """
        return self._look_up(constants.EVENTS_PATH, event_id)

    def coin(self, slug: str) -> CoinStatus:
        """Look up one coin (interface 4.2): whether it is known, tracked, and covered by the plan.

        Raises:
            ValueError: a slug that can't stand in a path.
            CatalogError: any of the tree but PlanLacksAccess.
        """
        try:
            answer = self._look_up(constants.COINS_PATH, slug)
        except PlanLacksAccess:
            return "not_covered"
        if answer.status != 200:
            return "unknown"
        content = read_single_body(decode_object_body(answer, f"GET {constants.COINS_PATH}"))
        return "untracked" if content.get("tracked") is False else "found"

    def _look_up(self, path: str, name: str) -> Answer:
        if name in ("", ".", ".."):
            raise ValueError(f"{name!r} can't be looked up")
        call = Call(f"{path}/{quote(name, safe='')}", {}, _LOOKED_UP)

        def read(answer: Answer) -> Answer:
            if answer.status == 200:
                decode_object_body(answer, str(call))
            elif read_error_body(answer).code == RETIRED:
                raise RequestRejected(f"{call} was answered {answer.status}: version retired")
            return answer

        return self._caller.get(call, read)

    def usage(self) -> ReportedUsage:
        """Return the key's usage, and pass it to the limiter; the call itself counts (4.7)."""
        usage = self._caller.get(Call(constants.USAGE_PATH, {}, for_usage=True), _read_usage)
        self._limiter.on_stated_pace(usage.rate, usage.burst)
        if usage.account is not None:
            self._limiter.on_usage(usage.account)
        return usage

    def inspect(
        self, path: str, params: Mapping[str, str], *, most_bytes: int, for_export: bool = False
    ) -> InspectedResponse:
        """Return the response of any status but 429, with at most so many bytes of its body.

        Raises:
            CatalogError: 429, or no complete response.
        """

        def read(head: ResponseHead, body: Body) -> InspectedResponse:
            found, fault = b"", ""
            try:
                for piece in body.pieces(self._caller.bounds.page_bytes):
                    found += piece
                    if len(found) > most_bytes:
                        break
            except CatalogError as error:
                fault = error.happened
            return InspectedResponse(
                *head.fields(), found[:most_bytes], is_cut=len(found) > most_bytes, fault=fault
            )

        call = Call(path, params, _INSPECTED, for_export=for_export)
        return self._caller.stream(call, read)

    def events_total(self, scope: Scope) -> int | None:
        """Return how many events a scope has, for one request; None if not reported."""
        of, params = PAGED["events"], {**make_query(scope), "limit": "1"}
        return self._caller.get(
            Call(of.path, params), lambda answer: read_page(answer, of, params).total
        )

    def export(
        self, into: Path, scope: Scope, *, may_be_empty: bool = False, etag: str | None = None
    ) -> ExportPull:
        """Stream the bulk export into the file `into` (interface 4.8); each attempt writes it anew.

        If it is still the one with `etag`, the status is 304 and nothing is received.

        An export that only looks truncated is reported: the merge knows how many rows to expect.

        Raises:
            NotData, TruncatedBody, ContractBroken: what was received is in the file.
            TooSlow: it exceeded the service's 30 s: request half of the dates.
            CatalogError: any other of the tree.
        """
        call = Call(self.export_path, make_query(scope), for_export=True)
        if etag is not None:
            unless_same = {"If-None-Match": etag}
            call = replace(call, statuses=OK | {NOT_MODIFIED}, headers=unless_same)

        def read(head: ResponseHead, body: Body) -> ExportPull:
            if head.status == NOT_MODIFIED:
                return ExportPull(*head.fields())
            into.unlink(missing_ok=True)
            with into.open("wb") as file:
                file.writelines(body.pieces(self._caller.bounds.export_bytes))
            try:
                return _read_export(head, into, str(call), may_be_empty=may_be_empty)
            except UnreadableBody as error:
                raise TruncatedBody(f"{call} was answered with {error}") from error

        return self._caller.stream(call, read)


def _read_export(head: ResponseHead, file: Path, call: str, *, may_be_empty: bool) -> ExportPull:
    """Read a received export; raise if it is not CSV of events, or certainly truncated."""
    beginning = next(as_utf8(read_chunks(file)), b"").removeprefix(codecs.BOM_UTF8)
    kind = detect_kind(beginning)
    if kind == "empty":
        raise make_not_data_error(head, call, "empty", "an empty body")
    if looks_like_html(beginning, head.headers):
        raise make_not_data_error(head, call, "html", "an HTML page")
    if kind == "json":
        raise make_not_data_error(head, call, "json", "JSON")
    names, delimiter, skip = [""], ",", 0
    with suppress(InvalidArgument):  # The merge reports it.
        names, delimiter, skip = find_header("the export", beginning)
    counted, start = 0, 0
    if file.stat().st_size <= _COUNTED_AT_ONCE:
        data = b"".join(as_utf8(read_chunks(file)))
        counted, start = count_plain_records(data, delimiter, skip)
    chunks = [data[start:]] if start else as_utf8(read_chunks(file))
    reader = RecordReader(chunks, delimiter=delimiter, skip=0 if start else skip)
    with suppress(CsvFault):  # It is longer than a record may be, which the merge reports.
        reader.count()
    rows = max(0, counted + reader.records - (not skip))
    is_short = rows > 0 and reader.last_fields < len(names)
    if reader.is_open or (is_short and not reader.ends_with_line_end):
        where = "quotes" if reader.is_open else "a record"
        raise TruncatedBody(f"{call}: the CSV ends inside {where}, after {rows} rows")
    if rows == 0 and not may_be_empty:
        raise make_not_data_error(head, call, "bare_header", "a header without rows")
    found: list[str] = []
    if not reader.ends_with_line_end:
        found.append("the last line has no line end")
    if is_short:
        found.append("the last record has too few fields")
    return ExportPull(*head.fields(), rows=rows, suspicions=tuple(found))


def _read_usage(answer: Answer) -> ReportedUsage:
    """Read the usage, of which any field may be absent (interface 4.7)."""
    content = read_usage_fields(
        read_single_body(decode_object_body(answer, f"GET {constants.USAGE_PATH}"))
    )
    period, plan = content.get("period"), content.get("plan")
    span = period if isinstance(period, dict) else {}
    used, limit, rest = (read_count(content.get(name)) for name in ("used", "limit", "remaining"))
    if limit is None and used is not None and rest is not None:
        limit = used + rest
    if used is None and limit is not None and rest is not None:
        used = limit - rest
    return ReportedUsage(
        at=answer.date,
        received_at=answer.received_at,
        plan=storable_text(plan[:_TEXT_CHARS].lower()) if isinstance(plan, str) else None,
        used=used,
        quota=limit,
        remaining=rest,
        reset_at=read_instant(content.get("resetAt")),
        period_start=read_instant(span.get("start")),
        period_end=read_instant(span.get("end")),
        rate=_rate(content.get("rate")),
        burst=read_count(content.get("burst")),
        is_unlimited=limit is None and "limit" in content,
        deprecation=answer.headers.get("deprecation", "")[:_TEXT_CHARS] or None,
        sunset=answer.headers.get("sunset", "")[:_TEXT_CHARS] or None,
    )


def _rate(value: Any) -> float | None:
    try:
        read = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return read if 0 <= read < float("inf") and not isinstance(value, bool) else None
