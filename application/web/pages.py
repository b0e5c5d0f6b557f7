"""One request for a page: its time of knowledge, its parameters, and the page made of a template.

Each page has `as_of`: the whole site shows what was known then. Links keep it.
"""

import logging
import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from hashlib import blake2b
from typing import Any, Final
from urllib.parse import quote, urlencode

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from almanac.coins import Coin, resolve_slugs
from almanac.database import Database
from almanac.errors import (
    AlmanacError,
    AmbiguousCoin,
    InvalidArgument,
    QueryRefused,
    UnknownName,
    WarehouseError,
)
from almanac.events import check_observed, read_known_at
from almanac.reader import Reader
from almanac.reading.named_sql import NamedStatements
from almanac.safe_text import cut_line, make_web_address, plain, plain_line

log = logging.getLogger(__name__)
_SQL = NamedStatements("application.web")
_STATUS: Final = (
    (UnknownName, 404),
    (AmbiguousCoin, 400),
    (InvalidArgument, 400),
    (QueryRefused, 422),
)
_HEADINGS: Final = (
    (UnknownName, "Not found"),
    (InvalidArgument, "Wrong value in the address"),
    (QueryRefused, "Nothing is known for this"),
    (WarehouseError, "The page could not be made"),
)
_MICROSECONDS: Final = re.compile(r"(?<=:\d\d)\.\d+")
_CHOICES_MAX: Final = 30
_PROSE_MAX: Final = 20_000
NAVIGATION: Final = (
    ("/", "Upcoming"),
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
    first of all. Nothing of it is later than now.
    """

    first: datetime | None = None
    previous: datetime | None = None
    current: datetime | None = None
    next: datetime | None = None


@dataclass(frozen=True, slots=True)
class SiteRequest:
    """A request for a page, and the publication that is kept open while it is answered.

    `as_of` is the time that the request names, None for now; `moment` is that time or now.
    `parameters` are of the query and the path; `query` has the parameters of the query alone.
    `is_report` says that the page is a part of a report, without forms and links of the site.
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
    is_report: bool = False

    @property
    def reader(self) -> Reader:
        return self.database.reader

    def text(self, name: str) -> str | None:
        """Return a parameter without blanks at its ends; None if it is missing or empty."""
        return self.parameters.get(name, "").strip() or None

    def link(self, path: str, **parameters: object) -> str:
        """Return the address of a page that keeps the time of knowledge."""
        kept: dict[str, object] = {} if self.as_of is None else {"as_of": instant_text(self.as_of)}
        return _address(path, kept | parameters)

    def again(self, **changed: object) -> str:
        """Return the address of this page with other parameters; None leaves one out."""
        return _address(self.path, {**self.query, "page": None, **changed})

    def other_time(self, moment: datetime | None) -> str:
        """Return the address of this page as of another time; None is now."""
        return self.again(as_of=None if moment is None else instant_text(moment))

    def is_current(self, path: str) -> bool:
        """Whether a link of the navigation leads to this page."""
        return self.path == path

    @property
    def removable(self) -> list[tuple[str, str, str]]:
        """The name and value of each parameter, and the address of this page without it."""
        return [
            (name, cut_line(value, 40), self.again(**{name: None}))
            for name, value in self.query.items()
            if name != "page" and value.strip()
        ]

    @property
    def kept(self) -> dict[str, str]:
        """The parameters that a form for another time keeps."""
        return {k: v for k, v in self.query.items() if k not in ("as_of", "page") and v.strip()}


def _address(path: str, parameters: Mapping[str, object]) -> str:
    given = {name: value for name, value in parameters.items() if value not in (None, "")}
    return path + (f"?{urlencode(given)}" if given else "")


class PageProblem(AlmanacError):
    """A page can't be shown. It has a heading, the reason, and links to choose from.

    `choices` are addresses with their text and a remark; `is_of_time` says that the time of
    knowledge is the reason.
    """

    def __init__(
        self,
        heading: str,
        message: str,
        status: int,
        choices: Sequence[tuple[str, str, str]] = (),
        *,
        is_of_time: bool = False,
    ) -> None:
        super().__init__(message)
        self.heading = heading
        self.status = status
        self.choices = tuple(choices)
        self.is_of_time = is_of_time


PageFunction = Callable[[SiteRequest], str]
"""Returns the HTML of a page. It may raise an AlmanacError."""


class Pages:
    """Answers requests with pages over a database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._pulls: tuple[str, list[datetime]] = ("", [])

    def endpoint(
        self, show: PageFunction, *, parameters: Collection[str] = (), needs_pull: bool = True
    ) -> Callable[[Request], Response]:
        """Return the endpoint of a page. Starlette runs it on a thread.

        The page takes `parameters` and `as_of`; another one is refused, since a misspelt `as_of`
        would show the present. With `needs_pull`, a time before the first pull gets the
        reason in place of the page.
        """

        def answer(request: Request) -> Response:
            try:
                with self._database.reader.pinned():
                    return self._answer(request, show, parameters, needs_pull=needs_pull)
            except AlmanacError as error:
                return _tagged(request, render_problem(None, error), _status(error))
            except Exception:
                log.exception("GET %s failed", plain_line(request.url.path))
                failed = WarehouseError(
                    "This page failed because of a defect of the server. The log of `almanac "
                    "serve` has the reason. The other pages are not affected."
                )
                return _tagged(request, render_problem(None, failed), 500)

        return answer

    def _answer(
        self, request: Request, show: PageFunction, parameters: Collection[str], *, needs_pull: bool
    ) -> Response:
        reader = self._database.reader
        query = dict(request.query_params)
        page = self.read_request(quote(request.scope["path"]), query, request.path_params)
        given = query.get("as_of", "").strip() or None
        try:
            _check_query(request, ("as_of", *parameters))
        except AlmanacError as error:
            return _tagged(request, render_problem(page, error), _status(error))
        try:
            moment = read_known_at(reader, given, "as_of")
            if needs_pull:
                check_observed(reader, moment, "as_of", given)
        except AlmanacError as error:
            heading = "Time not known" if page.pulls.first else "Nothing was pulled yet"
            problem = PageProblem(heading, str(error), _status(error), is_of_time=True)
            return _tagged(request, render_problem(page, problem), problem.status)
        if given is not None:
            page = self.move(page, moment)
        try:
            return _tagged(request, show(page), 200)
        except AlmanacError as error:
            return _tagged(request, render_problem(page, error), _status(error))

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
        )

    def move(self, page: SiteRequest, moment: datetime) -> SiteRequest:
        """Return the request for the same page as of a time."""
        pulls = self._find_pulls(moment, page.now)
        return replace(page, as_of=moment, moment=moment, pulls=pulls)

    def _find_pulls(self, moment: datetime, now: datetime) -> Pulls:
        """Return the pulls around a time. Their times are read once for a publication."""
        publication = self._database.reader.publication()
        kept, times = self._pulls
        if kept != publication.id:
            rows = self._database.reader.rows(_SQL["pull_times"])
            times = [row["observed_at"] for row in rows]
            self._pulls = publication.id, times
        here, end = bisect_right(times, moment), bisect_right(times, now)
        return Pulls(
            first=times[0] if end else None,
            previous=times[here - 2] if here > 1 else None,
            current=times[here - 1] if here else None,
            next=times[here] if here < end else None,
        )


def _status(error: AlmanacError) -> int:
    if isinstance(error, PageProblem):
        return error.status
    return next((code for kind, code in _STATUS if isinstance(error, kind)), 503)


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


def _tagged(request: Request, page: str, status: int) -> Response:
    tag = f'"{blake2b(page.encode(), digest_size=12).hexdigest()}"'
    if status == 200 and request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers={"etag": tag})
    return HTMLResponse(page, status_code=status, headers={"etag": tag})


def render(template: str, request: SiteRequest | None, *, title: str, **values: Any) -> str:
    """Return a page, or a part of a report, from a template. Every value is escaped."""
    layout = "part.html" if request is not None and request.is_report else "base.html"
    found = {"request": request, "title": title, "layout": layout, "navigation": NAVIGATION}
    found |= values
    return _templates().get_template(template).render(found)


def read_coin_filter(request: SiteRequest) -> list[str] | None:
    """Return the slugs of the filter `coin`, names separated by commas; None without one.

    Raises:
        PageProblem: no coin or several coins have this name; each choice is this page with a coin.
    """
    given = (request.text("coin") or "").split(",")
    names = [name.strip() for name in given if name.strip()]
    with coin_problems(lambda coin: request.again(coin=f"slug:{coin.slug}")):
        return resolve_slugs(request.reader, names or None)


@contextmanager
def coin_problems(link: Callable[[Coin], str]) -> Iterator[None]:
    """Turn errors about the name of a coin into problems with a link for each possible coin."""

    def list_choices(coins: Sequence[Coin]) -> list[tuple[str, str, str]]:
        return [(link(coin), coin.name or coin.slug, _describe_coin(coin)) for coin in coins]

    try:
        yield
    except AmbiguousCoin as error:
        coins = error.coins[:_CHOICES_MAX]
        count = len(error.coins)
        more = f" These are the first {len(coins)}." if count > len(coins) else ""
        reason = f"{count} coins have this ticker or name. Choose one.{more}"
        raise PageProblem("Which coin?", reason, 400, list_choices(coins)) from None
    except UnknownName as error:
        reason = str(error)
        if error.similar:
            reason = reason.split(" Similar: ")[0] + " Similar coins:"
        reason = reason[:1].upper() + reason[1:]
        raise PageProblem("Unknown coin", reason, 404, list_choices(error.similar)) from None


def _describe_coin(coin: Coin) -> str:
    rank = "" if coin.rank is None else f"rank {coin.rank:,}"
    parts = ((coin.symbol or "").upper(), rank, coin.slug)
    return " · ".join(cut_line(part, 80) for part in parts if part)


def render_problem(request: SiteRequest | None, error: AlmanacError) -> str:
    """Return the error page of a request: the reason, and links to other pages."""
    found = (heading for kind, heading in _HEADINGS if isinstance(error, kind))
    is_of_time = isinstance(error, PageProblem) and error.is_of_time
    return render(
        "problem.html",
        request,
        title=error.heading if isinstance(error, PageProblem) else next(found, "No answer"),
        problem=cut_line(_MICROSECONDS.sub("", str(error)), 1_000),
        choices=error.choices if isinstance(error, PageProblem) else (),
        is_of_time=is_of_time,
    )


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
        "moment": format_moment,
        "prose": lambda text: plain(text[:_PROSE_MAX]),
        "picked": _picked_text,
        "web_address": make_web_address,
        "quoted": lambda text: quote(text, safe=""),
        "number": "{:,}".format,
    }
    return made


def _without_controls(value: object) -> object:
    """Return a value of a template without control characters, also in an attribute."""
    return plain(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def instant_text(instant: datetime | None) -> str:
    """Return a timestamp in UTC, to the microsecond if it has them; empty for none."""
    if instant is None:
        return ""
    return instant.astimezone(UTC).isoformat().removesuffix("+00:00") + "Z"


def _picked_text(instant: datetime | None) -> str:
    """Return a timestamp as a field of a form has it: in UTC, without zone, whole seconds."""
    return "" if instant is None else instant.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S")


def format_moment(instant: datetime | None) -> Markup:
    """Return a timestamp for people, as an element of HTML; seconds only where there are some."""
    if instant is None:
        return Markup("")
    at = instant.astimezone(UTC)
    shown = at.strftime("%d %b %Y %H:%M:%S" if at.second or at.microsecond else "%d %b %Y %H:%M")
    return Markup('<time datetime="{}">{}</time>').format(instant_text(at), shown)
