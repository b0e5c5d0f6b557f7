"""One request for a page: its time of knowledge, its parameters, and the page made of a template.

Each page has `as_of`: the whole site shows what was known then. Links keep it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from hashlib import blake2b
from typing import Any, Final
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from almanac.database import Database
from almanac.errors import AlmanacError, InvalidArgument, QueryRefused, UnknownName
from almanac.events import find_pulls, known_at
from almanac.forms import plain_line, web_address
from almanac.reader import Reader

_STATUS: Final = ((UnknownName, 404), (InvalidArgument, 400), (QueryRefused, 422))


@dataclass(frozen=True, slots=True)
class SiteRequest:
    """A request for a page, and the publication that is kept open while it is answered.

    `as_of` is the time that the request names, None for now; `moment` is that time or now.
    """

    database: Database
    path: str
    parameters: Mapping[str, str]
    as_of: datetime | None
    moment: datetime

    @property
    def reader(self) -> Reader:
        return self.database.reader

    def text(self, name: str) -> str | None:
        """Return a parameter without blanks at its ends; None if it is missing or empty."""
        return self.parameters.get(name, "").strip() or None

    def link(self, path: str, **parameters: object) -> str:
        """Return the address of a page that keeps the time of knowledge."""
        kept: dict[str, object] = {} if self.as_of is None else {"as_of": instant_text(self.as_of)}
        found = {name: value for name, value in (parameters | kept).items() if value is not None}
        return path + (f"?{urlencode(found)}" if found else "")


PageFunction = Callable[[SiteRequest], str]
"""Returns the HTML of a page. It may raise an AlmanacError."""


class Pages:
    """Answers requests with pages over a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def endpoint(self, show: PageFunction) -> Callable[[Request], Response]:
        """Return the endpoint of a page. Starlette runs it on a thread."""

        def answer(request: Request) -> Response:
            database, moment = self._database, None
            parameters = {**request.query_params, **request.path_params}
            try:
                with database.reader.pinned():
                    given = parameters.get("as_of", "").strip() or None
                    moment = known_at(database.reader, given, "as_of")
                    as_of = None if given is None else moment
                    path = request.url.path
                    page = show(SiteRequest(database, path, parameters, as_of, moment))
                status = 200
            except AlmanacError as error:
                status = next((code for kind, code in _STATUS if isinstance(error, kind)), 503)
                page = render("problem.html", None, title="No answer", problem=str(error))
            return _tagged(request, page, status)

        return answer


def _tagged(request: Request, page: str, status: int) -> Response:
    tag = f'"{blake2b(page.encode(), digest_size=12).hexdigest()}"'
    if status == 200 and request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers={"etag": tag})
    return HTMLResponse(page, status_code=status, headers={"etag": tag})


def render(template: str, request: SiteRequest | None, *, title: str, **values: Any) -> str:
    """Return a page from a template of this package. Every value is escaped."""
    found: dict[str, Any] = {"request": request, "title": title, **values}
    if request is not None:
        _, found["last_pull_at"] = find_pulls(request.reader, request.moment)
        found["published_at"] = request.reader.publication().published_at
    return _templates().get_template(template).render(found)


@cache
def _templates() -> Environment:
    made = Environment(
        loader=PackageLoader("pipeline.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "instant": instant_text,
        "line": plain_line,
        "web_address": web_address,
        "quoted": lambda text: quote(text, safe=""),
        "number": "{:,}".format,
    }
    return made


def instant_text(instant: datetime | None) -> str:
    """Return a timestamp in UTC, to the microsecond if it has them; empty for none."""
    if instant is None:
        return ""
    return instant.astimezone(UTC).isoformat().removesuffix("+00:00") + "Z"
