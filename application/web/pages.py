"""One request for a page: its time of knowledge, its parameters, and the page made of a template.

Each page has `as_of`: the whole site shows what was known then. Links keep it.
"""

import csv
import logging
import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import cache
from hashlib import blake2b
from importlib.resources import files
from io import StringIO
from math import ceil
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlencode

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from almanac.coins import Coin
from almanac.core.errors import (
    AlmanacError,
    AmbiguousCoin,
    FutureTime,
    InvalidArgument,
    QueryRefused,
    UnknownName,
)
from almanac.core.statements import NO_VALUES, Statements
from almanac.core.text import cut_line, json_text, make_web_address, plain, plain_line
from almanac.core.timestamps import read_zone, utc_text
from almanac.database import Database
from almanac.events import check_observed, is_stale, read_known_at
from almanac.reader import Reader
from almanac.reading.row_files import mark_formula
from catalog.server.responses import is_not_modified, make_etag

log = logging.getLogger(__name__)
_SQL = Statements("application.web")
_PROBLEMS: Final = (
    (UnknownName, 404, "Not found"),
    (FutureTime, 422, "Time not known"),
    (AmbiguousCoin, 400, "Which coin?"),
    (InvalidArgument, 400, "Wrong value in the address"),
    (QueryRefused, 422, "Nothing is known for this"),
    (AlmanacError, 503, "The page could not be made"),
)
"""The status and heading of a page in place of another one, by the kind of error."""
_MICROSECONDS: Final = re.compile(r"(?<=:\d\d)\.\d+")
_CHOICES_MAX: Final = 30
_PROSE_MAX: Final = 20_000
_DAYS_MAX: Final = 150
FILE_ROWS: Final = 10_000
"""The most rows of a list in a file."""
NAVIGATION: Final = (
    ("/", "Events"),
    ("/coins", "Coins"),
    ("/changes", "Changes"),
    ("/quality", "Quality"),
    ("/calendar", "Calendar"),
)
"""The paths and names of the pages that every page links."""


@dataclass(frozen=True, slots=True)
class Pulls:
    """The pulls of events around the time of a request; None where there is none.

    `current` is the last one at that time, `previous` and `next` are its neighbours, `first` the
    first of all. Nothing of it is later than now. `complete` is the last complete one by then.
    `days` are the last ones of each day, or of every few days, to the next whole second.
    """

    first: datetime | None = None
    previous: datetime | None = None
    current: datetime | None = None
    next: datetime | None = None
    complete: datetime | None = None
    days: Sequence[datetime] = ()


class ReportPart(NamedTuple):
    """A part of a report: its heading, and the most rows of its list."""

    heading: str
    rows: int


@dataclass(frozen=True, slots=True)
class SiteRequest:
    """A request for a page, and the publication that is kept open while it is answered.

    `as_of` is the time that the request names, None for now; `moment` is that time or now.
    `parameters` are of the query and the path; `query` has the parameters of the query alone.
    `base_path` is the prefix of every address behind a proxy. `report` says that the page is a
    part of a report, without forms and links of the site. `plan` belongs to the key; None
    where there is no feed of changes.
    """

    database: Database
    path: str
    parameters: Mapping[str, str]
    as_of: datetime | None
    moment: datetime
    now: datetime
    query: Mapping[str, str]
    pulls: Pulls
    published_at: datetime | None
    base_path: str = ""
    report: ReportPart | None = None
    plan: str | None = None
    zone: tzinfo = UTC
    """The zone of days and times."""
    origin: str = ""
    """Scheme, host and port of the address, for documents that are read elsewhere."""

    @property
    def is_report(self) -> bool:
        return self.report is not None

    @property
    def reader(self) -> Reader:
        return self.database.reader

    def text(self, name: str) -> str | None:
        """Return a parameter without blanks at its ends; None if it is missing or empty."""
        return self.parameters.get(name, "").strip() or None

    @property
    def today(self) -> date:
        return self.moment.astimezone(self.zone).date()

    def link(self, path: str, **parameters: object) -> str:
        """Return the address of a page that keeps the time of knowledge and the zone."""
        zone = None if self.zone is UTC else str(self.zone)
        kept = {"as_of": instant_text(self.as_of), "tz": zone}
        return _address(self.base_path + path, kept | parameters)

    def again(self, **changed: object) -> str:
        """Return the address of this page with other parameters; None leaves one out."""
        return _address(self.base_path + self.path, {**self.query, "page": None, **changed})

    def other_time(self, moment: datetime | None) -> str:
        """Return the address of this page as of another time; None is now."""
        return self.again(as_of=None if moment is None else instant_text(moment))

    @property
    def age(self) -> str:
        """The time since the last pull of events, such as "6 min"."""
        return "" if self.pulls.current is None else format_age(self.moment - self.pulls.current)

    @property
    def is_stale(self) -> bool:
        """Whether the last complete pull of events is too old, by the rule of `almanac status`."""
        return is_stale(self.pulls.complete, self.moment)

    @property
    def kept(self) -> dict[str, str]:
        """The parameters that a form for another time keeps, and that can be removed."""
        return {k: v for k, v in self.query.items() if k not in ("as_of", "page") and v.strip()}


def _address(path: str, parameters: Mapping[str, object]) -> str:
    given = {name: value for name, value in parameters.items() if value not in (None, "")}
    return path + (f"?{urlencode(given)}" if given else "")


class PageProblem(AlmanacError):
    """A page can't be shown. It has a heading, the reason, and links to choose from: addresses
    with their text and a remark."""

    def __init__(
        self, heading: str, message: str, status: int, choices: Sequence[tuple[str, str, str]] = ()
    ) -> None:
        super().__init__(message)
        self.heading = heading
        self.status = status
        self.choices = tuple(choices)


PageFunction = Callable[[SiteRequest], str | Response]
"""Returns the HTML of a page, or another answer. It may raise an AlmanacError."""


class Pages:
    """Answers requests with pages over a database, with `base_path` before each address."""

    def __init__(self, database: Database, base_path: str = "") -> None:
        self._database = database
        self._base_path = base_path

    def endpoint(
        self, show: PageFunction, *, parameters: Collection[str] = (), needs_pull: bool = True
    ) -> Callable[[Request], Response]:
        """Return the endpoint of a page. Starlette runs it on a thread.

        The page takes `parameters`, `as_of` and `tz`; another one is refused, since a misspelt
        `as_of` would show the present. With `needs_pull`, a time before the first pull gets the
        reason in place of the page.
        """

        def answer(request: Request) -> Response:
            page, reader = None, self._database.reader
            try:
                with reader.pinned():
                    query = dict(request.query_params)
                    path = quote(request.scope["path"])
                    page = self.read_request(path, query, request.path_params)
                    _check_query(request, ("as_of", "tz", *parameters))
                    origin = f"{request.url.scheme}://{request.url.netloc}"
                    zone = read_zone(page.text("tz") or UTC)
                    page = replace(page, plan=request.scope.get("plan"), origin=origin, zone=zone)
                    page = self._move(page, needs_pull=needs_pull)
                    tag = {"etag": self._make_tag(request, page)}
                    if is_not_modified(request, tag["etag"]):
                        return Response(status_code=304, headers=tag)
                    shown = show(page)
            except AlmanacError as error:
                return render_problem(page, error, self._base_path)
            except Exception:
                log.exception("GET %s failed", plain_line(request.url.path))
                reason = (
                    "This page failed because of a defect of the server. The log of `almanac "
                    "serve` has the reason. The other pages are not affected."
                )
                failed = PageProblem("The page could not be made", reason, 500)
                return render_problem(None, failed, self._base_path)
            made = HTMLResponse(shown) if isinstance(shown, str) else shown
            made.headers.update(tag)
            return made

        return answer

    def _move(self, page: SiteRequest, *, needs_pull: bool) -> SiteRequest:
        """Return the request as of the time in its address."""
        given = page.text("as_of")
        try:
            moment = read_known_at(page.reader, given, "as_of")
            if needs_pull:
                check_observed(page.reader, moment, "as_of", given)
        except (InvalidArgument, QueryRefused) as error:
            first, choices = page.pulls.first, [(page.other_time(None), "now", "")]
            if first is None:
                raise PageProblem("Nothing was pulled yet", str(error), 422) from error
            choices.insert(0, (page.other_time(first), f"{first:%d %b %Y %H:%M}", "the first pull"))
            raise PageProblem(
                "Time not known", str(error), _find_kind(error)[0], choices
            ) from error
        return page if given is None else self.move(page, moment)

    def _make_tag(self, request: Request, page: SiteRequest) -> str:
        """Return the tag of a page: it changes with the publication, a pull, and each minute, in
        which ages are told. A page may show the name of the server, and a token of the key."""
        own = [request.url.netloc, *map(request.headers.get, ("authorization", "x-api-key"))]
        minute = page.moment if page.as_of else page.moment.replace(second=0, microsecond=0)
        known = self._database.reader.publication().id, page.pulls.current, page.pulls.next
        parts = (*known, minute, *own, request.url.scheme, page.link(page.path), page.query)
        return make_etag(repr((_mark_of_code(), *parts)).encode())

    def read_request(
        self, path: str, query: Mapping[str, str], path_parameters: Mapping[str, str] | None = None
    ) -> SiteRequest:
        """Return a request for a page of now."""
        reader = self._database.reader
        now, publication = reader.now(), reader.publication()
        return SiteRequest(
            database=self._database,
            path=path,
            parameters={**query, **(path_parameters or {})},
            as_of=None,
            moment=now,
            now=now,
            query=query,
            pulls=self._find_pulls(now, now),
            # In a replay the file is later than the clock.
            published_at=publication.published_at if publication.published_at <= now else None,
            base_path=self._base_path,
        )

    def move(self, page: SiteRequest, moment: datetime) -> SiteRequest:
        """Return the request for the same page as of a time."""
        pulls = self._find_pulls(moment, page.now)
        return replace(page, as_of=moment, moment=moment, pulls=pulls)

    def _find_pulls(self, moment: datetime, now: datetime) -> Pulls:
        """Return the pulls around a time."""

        def read() -> tuple[list[datetime], list[datetime]]:
            rows = self._database.reader.rows(_SQL["pull_times"])
            complete = [row["observed_at"] for row in rows if row["is_complete"]]
            return [row["observed_at"] for row in rows], complete

        times, complete = self._database.reader.once("pull times", read)
        here, end = bisect_right(times, moment), bisect_right(times, now)

        def list_days() -> Sequence[datetime]:
            rounded = (at + timedelta(microseconds=-at.microsecond % 10**6) for at in times[:end])
            days = list({at.date(): at for at in rounded}.values())[::-1]
            return days[:: ceil(len(days) / _DAYS_MAX) or 1][::-1]

        whole = bisect_right(complete, moment)
        return Pulls(
            first=times[0] if end else None,
            previous=times[here - 2] if here > 1 else None,
            current=times[here - 1] if here else None,
            next=times[here] if here < end else None,
            complete=complete[whole - 1] if whole else None,
            days=self._database.reader.once(f"days of pulls to {end}", list_days),
        )


def _find_kind(error: AlmanacError) -> tuple[int, str]:
    if isinstance(error, PageProblem):
        return error.status, error.heading
    return next((status, name) for kind, status, name in _PROBLEMS if isinstance(error, kind))


def _check_query(request: Request, known: Collection[str]) -> None:
    """Refuse a parameter that is unknown, or given twice: which of them counts would be a guess."""
    names = [name for name, _ in request.query_params.multi_items()]
    for name in names:
        if name not in known:
            raise InvalidArgument(
                f"this page has no parameter {cut_line(name, 40)!r}; it has {', '.join(known)}"
            )
        if names.count(name) > 1:
            shown = cut_line(name, 40)
            raise InvalidArgument(f"{shown} is given {names.count(name)} times; give it once")


def table_file(
    request: SiteRequest,
    form: str,
    name: str,
    rows: Sequence[Mapping[str, Any]],
    facts: Mapping[str, object] = NO_VALUES,
) -> Response:
    """Return the rows of a list as a file: `csv`, or `json` with the times of its knowledge and
    other facts.

    Raises:
        InvalidArgument: it is another form.
    """
    if form == "json":
        known = {"as_of": request.moment, "last_pull_at": request.pulls.current, **facts}
        return Response(json_text({**known, "rows": rows}), media_type="application/json")
    if form != "csv":
        raise InvalidArgument(f"format={cut_line(form, 40)!r}; expected csv or json")
    text = StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(rows[0] if rows else ())
    table.writerows([_csv_cell(value) for value in row.values()] for row in rows)
    headers = {"content-disposition": f'attachment; filename="{name}.csv"'}
    return Response(text.getvalue(), media_type="text/csv", headers=headers)


def _csv_cell(value: object) -> object:
    if isinstance(value, datetime):
        return instant_text(value)
    if isinstance(value, list | tuple):
        value = ", ".join(map(str, value))
    return mark_formula(value) if isinstance(value, str) else value


def render(
    template: str, request: SiteRequest | None, *, title: str, base_path: str = "", **values: Any
) -> str:
    """Return a page, or a part of a report, from a template. Every value is escaped."""
    layout = "part.html" if request is not None and request.is_report else "base.html"
    base = base_path if request is None else request.base_path
    found = {"request": request, "title": title, "layout": layout, "navigation": NAVIGATION}
    zone = "UTC" if request is None else str(request.zone)
    found |= {"base": base, "zone": zone, **values}
    return _templates().get_template(template).render(found)


@cache
def read_static(name: str) -> tuple[bytes, str]:
    """Return a static file of the package, and the mark of its content in addresses."""
    content = files("application.web").joinpath("static", name).read_bytes()
    return content, blake2b(content, digest_size=6).hexdigest()


@cache
def _mark_of_code() -> str:
    """Return a mark that changes with the templates, scripts and style sheets of the pages."""
    folders = (files("application.web").joinpath(name) for name in ("templates", "static"))
    texts = [file.read_bytes() for folder in folders for file in folder.iterdir()]
    return blake2b(b"".join(sorted(texts)), digest_size=6).hexdigest()


@contextmanager
def coin_problems(link: Callable[[Coin, str], str], largest: str = "") -> Iterator[None]:
    """Turn errors about names of coins into problems with a link for each possible coin, made of
    the coin and the name, and with `largest`, the link to the best rank of each name."""

    def list_choices(coins: Iterable[Coin], name: str) -> list[tuple[str, str, str]]:
        return [(link(coin, name), coin.name or coin.slug, _describe_coin(coin)) for coin in coins]

    try:
        yield
    except AmbiguousCoin as error:
        named = error.candidates.items()
        choices = [each for name, coins in named for each in list_choices(coins, name)]
        names = ", ".join(cut_line(name, 40) for name, _ in named)
        what = "this ticker or name" if len(named) == 1 else f"the tickers or names {names}"
        more = f" These are the first {_CHOICES_MAX}." if len(choices) > _CHOICES_MAX else ""
        reason = f"{len(choices)} coins have {what}. Choose one.{more}"
        choices[_CHOICES_MAX:] = [(largest, "Largest", "best rank")] if largest else []
        raise PageProblem("Which coin?", reason, 400, choices) from None
    except UnknownName as error:
        reason = str(error)
        if error.similar:
            reason = reason.split(" Similar: ")[0] + " Similar coins:"
        reason = reason[:1].upper() + reason[1:]
        choices = list_choices(error.similar, error.text)
        raise PageProblem("Unknown coin", reason, 404, choices) from None


def _describe_coin(coin: Coin) -> str:
    rank = "" if coin.rank is None else f"rank {coin.rank:,}"
    parts = ((coin.symbol or "").upper(), rank, coin.slug)
    return " · ".join(cut_line(part, 80) for part in parts if part)


def render_problem(
    request: SiteRequest | None, error: AlmanacError, base_path: str = ""
) -> Response:
    """Return the error page of a request: the reason, and links to other pages."""
    status, heading = _find_kind(error)
    page = render(
        "problem.html",
        request,
        title=heading,
        problem=cut_line(_MICROSECONDS.sub("", str(error)), 1_000),
        choices=error.choices if isinstance(error, PageProblem) else (),
        base_path=base_path,
    )
    return HTMLResponse(page, status)


@cache
def _templates() -> Environment:
    made = Environment(
        loader=ChoiceLoader([PackageLoader("application.web"), PackageLoader("almanac")]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_without_controls,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "instant": instant_text,
        "line": plain_line,
        "cut": cut_line,
        "moment": _show_moment,
        "prose": lambda text: plain(text[:_PROSE_MAX]),
        "picked": _picked_text,
        "web_address": make_web_address,
        "marked": lambda name: f"{name}?v={read_static(name)[1]}",
        "span": span_text,
        "quoted": lambda text: quote(text, safe=""),
        "number": "{:,}".format,
    }
    return made


def _without_controls(value: object) -> object:
    """Return a value of a template without control characters, also in an attribute."""
    return plain(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def instant_text(instant: datetime | None) -> str:
    """Return a timestamp in UTC, to the microsecond if it has them; empty for none."""
    return "" if instant is None else utc_text(instant)


def span_text(shown: str) -> str:
    """Return a displayed date for people: a range has a dash, since an arrow marks a change."""
    return shown.replace(" → ", " – ")


def _picked_text(instant: datetime | None) -> str:
    """Return a timestamp as a field of a form has it: in UTC, without zone, whole seconds."""
    return "" if instant is None else instant.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S")


def format_age(age: timedelta) -> str:
    """Return a time since a pull, in minutes, hours or days."""
    minutes = max(0, int(age.total_seconds() // 60))
    if minutes < 120:
        return f"{minutes} min"
    return f"{minutes // 60} h" if minutes < 48 * 60 else f"{minutes // 1440} days"


@pass_context
def _show_moment(context: Context, instant: datetime | None) -> Markup:
    """Return a timestamp in the zone of the page. A macro of another file needs `with context`."""
    return format_moment(instant, context["request"].zone)


def format_moment(instant: datetime | None, zone: tzinfo = UTC) -> Markup:
    """Return a timestamp for people, as an element of HTML; seconds only where there are some."""
    if instant is None:
        return Markup("")
    at = instant.astimezone(zone)
    shown = at.strftime("%d %b %Y %H:%M:%S" if at.second or at.microsecond else "%d %b %Y %H:%M")
    return Markup('<time datetime="{}">{}</time>').format(instant_text(at), shown)
