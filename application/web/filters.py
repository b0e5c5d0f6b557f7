"""The filters that lists of events and of changes share.

`coins`, `categories`, `min_impact`, `max_rank` and `q` mean the same on each page, in its CSV and
JSON, and in the calendar. Lists are separated by commas.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from difflib import get_close_matches
from functools import partial
from typing import Any, Final, TypeVar

from almanac.coins import Coin, keep_ranked, resolve_slugs
from almanac.core.errors import InvalidArgument
from almanac.core.statements import Statements
from almanac.core.text import cut_line
from almanac.core.timestamps import subtract_time
from almanac.events import BANDS, make_impact_values, read_min_impact
from application.web.pages import PageProblem, SiteRequest, coin_problems

_SQL = Statements("application.web")
FILTERS: Final = ("coins", "ambiguous", "categories", "min_impact", "max_rank", "q")
"""The parameters that `read_filters` reads."""
_TABLES: Final = {
    "page_events": "latest",
    "page_coin_events": "coin",
    "page_coins": "coin",
    "page_words": "event_id",
}
"""The statements that `read_events` prepares, each after those that it reads, and the column by
which their rows are sorted, so that a part of them is found without reading all."""
_NOT_CHIPS: Final = (
    *("coins", "categories", "as_of", "tz", "view", "sort", "page", "format"),
    *("kinds", "last"),
)
_DAYS_MAX: Final = 1_100
"""Days by which SQL groups events of a list; those beyond are sorted by their time alone."""
_RANKS: Final = (100, 500)
_DRAWN_MAX: Final = 300
Drawn = TypeVar("Drawn")
NEWS: Final = timedelta(days=7)
"""How long an event is news after it was first seen, moved or left."""


@dataclass(frozen=True, slots=True)
class Filters:
    """The filters of a list: slugs, categories in their stored spelling, a score, a rank, and words
    of a title in small letters; None for a filter that is not given."""

    coins: list[str] | None = None
    selected: Sequence[str] | None = field(default=None, repr=False)
    """The slugs of `coins`, or of all coins, that had the rank at the time of the request."""
    categories: list[str] | None = None
    min_impact: float | None = None
    max_rank: int | None = None
    words: str | None = None
    problems: tuple[PageProblem, ...] = ()
    """The coins that were not understood, each with its choices."""

    @property
    def values(self) -> dict[str, Any]:
        """The parameters of a statement: $coins, $categories, $words, $min_impact and $bands."""
        categories = None if self.categories is None else [c.lower() for c in self.categories]
        return {
            "coins": self.coins if self.max_rank is None else self.selected,
            "categories": categories,
            "words": self.words,
            **make_impact_values(self.min_impact),
        }


def read_filters(request: SiteRequest, *, keeps_rest: bool = False) -> Filters:
    """Return the filters of a request. With `keeps_rest`, a page without the coins that were not
    understood is possible, if there are others.

    Raises:
        PageProblem: a coin or a category is unknown, or a coin is ambiguous; it has choices.
        InvalidArgument: `min_impact` can't be read.
    """
    words, max_rank = request.text("q"), request.text("max_rank")
    rank = None if max_rank is None else read_count(max_rank, "max_rank")
    coins, problems = _read_coins(request, keeps_rest=keeps_rest and not request.text("format"))
    ranked = partial(keep_ranked, request.reader, coins, rank, request.moment)
    return Filters(
        coins=coins,
        selected=keep_drawn(request, ("ranked", repr(coins), rank), ranked) if rank else None,
        max_rank=rank,
        problems=problems,
        categories=_read_categories(request),
        min_impact=read_min_impact(request.text("min_impact")),
        words=None if words is None else words.lower(),
    )


def read_events(
    request: SiteRequest, sql: str, values: Mapping[str, Any], *, slot: str = "past"
) -> list[dict[str, Any]]:
    """Return the rows of a statement over the tables of `page_events.sql`, as known at the time.

    They are prepared once for a publication, and once more for the past time asked for
    last in a slot: a page that compares two past times needs two.
    """
    reader, is_now = request.reader, is_of_now(request)
    at = (is_now and reader.publication().last_pull_at) or request.moment
    known = {"known_at": "infinity" if is_now else at, "news_since": subtract_time(at, NEWS)}
    read = sql + "".join(_SQL[name] for name in _TABLES if name in sql)
    past: list[str] = []
    for name, column in _TABLES.items():
        if name not in read:
            continue
        source = f"{_SQL[name]}\nORDER BY {column}"
        needed = {key: value for key, value in known.items() if f"${key}" in source}
        if is_now:
            reader.prepare(name, source, needed)
        else:
            reader.prepare(f"{slot}_{name}", _read_past(source, past, slot), needed, as_of=at)
            past.append(name)
    return reader.rows(_read_past(sql, past, slot), values)


def _read_past(sql: str, past: Sequence[str], slot: str) -> str:
    """Return a statement that reads tables of a past time in place of those of now."""
    tables = ", ".join(f"{name} AS (FROM {slot}_{name})" for name in past)
    return f"WITH {tables} FROM ({sql}\n)" if tables else sql


def bound_days(request: SiteRequest, first: date, end: date) -> dict[str, Any]:
    """Return the parameters of `in_days` for the days from `first` until `end`."""
    return {
        "starts": midnight(first, request.zone),
        "ends": midnight(end, request.zone),
        "day_starts": midnight(first, UTC),
        "day_ends": midnight(end, UTC),
    }


def list_days(request: SiteRequest, first: date, end: date) -> dict[str, Any]:
    """Return the parameters of `in_days` and `zone_days`: of some days and of each of them."""
    days = [first + timedelta(number) for number in range(min((end - first).days, _DAYS_MAX))]
    midnights = [midnight(day, request.zone) for day in days]
    return {**bound_days(request, first, end), "days": days, "midnights": midnights}


def midnight(day: date, zone: tzinfo) -> datetime:
    """Return the start of a day in a zone, as a timestamp in UTC."""
    return datetime.combine(day, time(), tzinfo=zone).astimezone(UTC)


def is_of_now(request: SiteRequest) -> bool:
    """Return whether all that the file has was known at the time of the request."""
    last = request.reader.publication().last_pull_at
    return last is None or last <= request.moment


def keep_drawn(request: SiteRequest, key: Hashable, draw: Callable[[], Drawn]) -> Drawn:
    """Return a part of a page of now, drawn once for a publication; `key` has all that it shows.

    Of the parts the last hundreds are kept.
    """
    if not is_of_now(request):
        return draw()
    drawn: dict[Hashable, Drawn] = request.reader.once("drawn parts", dict)
    if key not in drawn:
        if len(drawn) >= _DRAWN_MAX:
            drawn.clear()
        drawn[key] = draw()
    return drawn[key]


def split_list(given: str | None) -> list[str] | None:
    """Return the values of a parameter that are separated by commas, without blanks; None if it
    has none."""
    return [text.strip() for text in (given or "").split(",") if text.strip()] or None


def list_categories(request: SiteRequest) -> list[str]:
    """Return the categories that were known at the time of knowledge."""
    reader = request.reader
    rows = reader.once("known_categories", lambda: reader.rows(_SQL["known_categories"]))
    return [row["category"] for row in rows if row["known_from"] <= request.moment]


def list_coins(request: SiteRequest) -> dict[str, tuple[str, str]]:
    """Return label and name of each coin by its slug, as they are now.

    The label is the ticker in capitals, with the name if another coin has the same.
    """
    reader = request.reader

    def read() -> dict[str, tuple[str, str]]:
        found = {}
        for row in reader.rows(_SQL["coin_names"]):
            ticker, name = (row["symbol"] or "").upper(), row["name"] or row["coin"]
            label = f"{ticker} ({name})" if row["is_shared"] else ticker
            found[row["coin"]] = (label if ticker else row["coin"], name)
        return found

    return reader.once("coin_names", read)


def label_coins(request: SiteRequest, rows: Iterable[dict[str, Any]]) -> None:
    """Give each row `coin_labels`: slug and label of each of its coins."""
    coins = list_coins(request)
    for row in rows:
        slugs = row["coins"] or ()
        row["coin_labels"] = [(slug, coins[slug][0] if slug in coins else slug) for slug in slugs]


def describe_filters(request: SiteRequest, filters: Filters) -> str:
    """Return the filters for a title, such as "Bitcoin, Ethereum, Airdrop"; empty without any."""
    coins = list_coins(request)
    found = [coins[slug][1] if slug in coins else slug for slug in filters.coins or ()]
    found += filters.categories or ()
    if filters.min_impact is not None:
        found.append(f"impact from {filters.min_impact:g}")
    if filters.max_rank is not None:
        found.append(f"rank 1 to {filters.max_rank}")
    if filters.words is not None:
        found.append(f"“{filters.words}”")
    return cut_line(", ".join(found), 80)


def make_bar(request: SiteRequest, filters: Filters) -> dict[str, Any]:
    """Return the values of `filter_bar.html`: a chip for each filter, its text and the address of
    the page without it, and the choices of categories and impacts."""
    coins, least, chosen = list_coins(request), filters.min_impact, filters.categories or []
    slugs = {slug: coins[slug][0] if slug in coins else slug for slug in filters.coins or ()}
    chips = []
    for parameter, mark, shown in (
        ("coins", "slug:", slugs),
        ("categories", "", dict(zip(chosen, chosen, strict=True))),
    ):
        for value, text in shown.items():
            rest = ",".join(f"{mark}{other}" for other in shown if other != value)
            chips.append((text, request.again(**{parameter: rest or None})))
    for name in request.query:
        if name not in _NOT_CHIPS and request.text(name):
            label = {"min_impact": "impact:", "max_rank": "rank 1 to"}.get(name, f"{name}:")
            text = f"{label} {cut_line(request.query[name], 40)}"
            chips.append((text, request.again(**{name: None})))
    impacts = {f"{low:g}": f"{name}, from {low:g}" for low, name in BANDS if low}
    if least is not None:
        impacts.setdefault(f"{least:g}", f"From {least:g}")
    return {
        "problems": filters.problems,
        "chips": chips,
        "chosen": ",".join(chosen),
        "adding": [
            ",".join([*chosen, name]) for name in list_categories(request) if name not in chosen
        ],
        "impacts": impacts,
        "least": "" if least is None else f"{least:g}",
        "ranks": {n: f"1 to {n}" for n in sorted({*_RANKS, filters.max_rank or _RANKS[0]})},
        "max_rank": filters.max_rank,
    }


def read_choice(request: SiteRequest, name: str, choices: Mapping[str, str], default: str) -> str:
    """Return a parameter that is one of the keys of `choices`."""
    given = request.text(name) or default
    if given not in choices:
        raise InvalidArgument(f"{name}={cut_line(given, 40)!r}; expected {', '.join(choices)}")
    return given


def read_count(given: str | None, name: str, default: int = 1) -> int:
    """Return a parameter that is a whole number from 1, such as the number of a page.

    Raises:
        InvalidArgument: it is not such a number.
    """
    given = given or str(default)
    if not (given.isascii() and given.isdigit() and len(given) < 7 and int(given) >= 1):
        raise InvalidArgument(f"{name}={cut_line(given, 40)!r}; expected a number from 1 on")
    return int(given)


def _read_coins(
    request: SiteRequest, *, keeps_rest: bool
) -> tuple[list[str] | None, tuple[PageProblem, ...]]:
    names = split_list(request.text("coins"))
    if not names:
        return None, ()
    rule: Any = read_choice(request, "ambiguous", {"raise": "", "largest": ""}, "raise")

    def link(coin: Coin, name: str) -> str:
        """Return the address of this page with a coin in place of the name that needs a choice."""
        rest = [other for other in names if other.lower() != name.lower()]
        return request.again(coins=",".join([*rest, f"slug:{coin.slug}"]))

    def resolve(some: list[str]) -> list[str]:
        with coin_problems(link, request.again(ambiguous="largest")):
            return resolve_slugs(request.reader, some, request.moment, rule) or []

    try:
        return list(dict.fromkeys(resolve(names))), ()
    except PageProblem:
        if not keeps_rest:
            raise
        slugs: list[str] = []
        problems = []
        for name in dict.fromkeys(names):
            try:
                slugs += resolve([name])
            except PageProblem as problem:
                problems.append(problem)
        if not slugs:
            raise
        return list(dict.fromkeys(slugs)), tuple(problems)


def _read_categories(request: SiteRequest) -> list[str] | None:
    given = split_list(request.text("categories"))
    if not given:
        return None
    known = {name.lower(): name for name in list_categories(request)}
    for name in given:
        if name.lower() in known:
            continue
        near = [known[text] for text in get_close_matches(name.lower(), known, 3, 0.4)]
        rest = [each for each in given if each != name]
        similar = [(request.again(categories=",".join([*rest, n])), n, "") for n in near]
        hint = " Similar categories:" if similar else ""
        reason = f"No event has the category {cut_line(name, 60)!r}.{hint}"
        raise PageProblem("Unknown category", reason, 404, similar)
    return list(dict.fromkeys(known[name.lower()] for name in given))
