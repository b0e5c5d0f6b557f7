"""The list of coins, the page of one coin with its events, and the search over events and coins."""

from datetime import timedelta
from math import ceil
from typing import Any, Final
from urllib.parse import quote

from markupsafe import Markup
from starlette.responses import RedirectResponse, Response

from almanac.coins import find_coins
from almanac.core.errors import InvalidArgument
from almanac.core.statements import Statements
from almanac.core.text import cut_line
from application.web.coin_prices import CoinPrices
from application.web.comparison import compare_events
from application.web.drawing import LANE_DAYS, draw_lanes
from application.web.filters import (
    Filters,
    keep_drawn,
    read_choice,
    read_count,
    read_events,
    read_filters,
)
from application.web.pages import (
    FILE_ROWS,
    PageProblem,
    SiteRequest,
    coin_problems,
    render,
    table_file,
)
from application.web.upcoming_page import (
    FILE_COLUMNS,
    draw_strip,
    link_stars,
    list_dates,
    prepare_events,
    show_gone,
)

_SQL = Statements("application.web")
COIN_PARAMETERS: Final = ("coins", "compare", "asked", "format")
COINS_PARAMETERS: Final = ("coins", "q", "sort", "page", "format", "limit")
_ON_A_PAGE: Final = 60
_SORTS: Final = {"rank": "Rank", "name": "Coin", "upcoming": "Upcoming", "next": "Next event"}
_EVENTS_SHOWN: Final = 40
_PAST_SHOWN: Final = 12
_FOUND_COINS: Final = 8
_LANE_EVENTS: Final = 60


def show_coins(request: SiteRequest) -> str | Response:
    """Return the page of the coins known at the time; `q` searches, `coins` are
    starred, and `limit` is the most rows of a file."""
    page, filters = read_count(request.text("page"), "page"), read_filters(request)
    form, size = request.text("format"), _ON_A_PAGE
    if form is not None:
        page, size = 1, min(read_count(request.text("limit"), "limit", FILE_ROWS), FILE_ROWS)
    sort = read_choice(request, "sort", _SORTS, "rank")
    values = {"at": request.moment, "words": filters.words, "sort": sort, "limit": size}
    coins = read_events(request, _SQL["coin_list"], {**values, "first": (page - 1) * size})
    total = max((coin.pop("total") for coin in coins), default=0)
    if form is not None:
        return table_file(request, form, "coins", coins)
    if page > 1 and not coins:
        raise InvalidArgument(f"page={page}: there are fewer pages. Begin with the first.")
    return render(
        "coins.html",
        request,
        title=f"Coins with {filters.words!r}" if filters.words else "Coins",
        coins=coins,
        starred=filters.coins or [],
        stars=link_stars(request, filters, [coin["coin"] for coin in coins]),
        sort=sort,
        sorts=_SORTS,
        page=page,
        pages=ceil(total / _ON_A_PAGE),
        total=total,
    )


def show_coin(request: SiteRequest, prices: CoinPrices | None = None) -> str | Response:
    """Return the page of a coin, by its slug; a ticker or name stands for its one coin."""
    given = request.parameters["slug"]
    values: dict[str, Any] = {"coin": given}
    facts = read_events(request, _SQL["coin_facts"], values)
    if not facts:
        with coin_problems(lambda coin, _: request.link(f"/coin/{quote(coin.slug, safe='')}")):
            values["coin"] = request.database.resolve(given).slug
        facts = read_events(request, _SQL["coin_facts"], values)
    if not facts:
        shown = cut_line(given, 60)
        time = f"{request.moment:%Y-%m-%d %H:%M} UTC"
        raise PageProblem("Unknown coin", f"The coin {shown!r} was not known at {time}.", 404)
    (coin,) = facts
    if form := request.text("format"):
        values |= {"at": request.moment, "limit": FILE_ROWS, "past_limit": FILE_ROWS}
        rows = read_events(request, _SQL["coin_events"], values)
        listed = [{name: row[name] for name in FILE_COLUMNS} for row in rows]
        return table_file(request, form, "coin", listed, {"coin": coin})
    values |= {"at": request.moment, "limit": _EVENTS_SHOWN, "past_limit": _PAST_SHOWN}
    events = prepare_events(request, read_events(request, _SQL["coin_events"], values))
    for event in events:
        event["coin_labels"] = [each for each in event["coin_labels"] if each[0] != coin["coin"]]
    days = request.today, request.today + timedelta(days=365)
    compared = compare_events(request, Filters(coins=[coin["coin"]]), days, events)
    counts = events[0] if events else {"events": 0, "upcoming": 0}
    asked = request.text("asked")
    same = _find_named(request, asked) if asked else ()
    starred = dict.fromkeys([*(read_filters(request).coins or ()), coin["coin"]])
    return render(
        "coin.html",
        request,
        title=coin["name"] or values["coin"],
        coin=coin,
        filter=f"slug:{coin['coin']}",
        asked=asked,
        others=[other for other in same if other["coin"] != coin["coin"]][:_FOUND_COINS],
        watched=[f"slug:{slug}" for slug in starred],
        events=events,
        strip=draw_strip(request, Filters(coins=[coin["coin"]])),
        **show_gone(request, compared),
        lanes=_draw_lanes(request, coin["coin"], prices),
        has_price=prices is not None and coin["coin"] in prices.columns,
        upcoming_total=counts["upcoming"],
        past_total=counts["events"] - counts["upcoming"],
    )


def _draw_lanes(request: SiteRequest, coin: str, prices: CoinPrices | None) -> Markup | None:
    """Return the picture of a coin's events around the time, with the dates that they had, and of
    its prices until then."""
    now = request.moment.replace(second=0, microsecond=0)
    span = timedelta(days=LANE_DAYS)
    values = {"coin": coin, "starts": now - span, "ends": now + span, "limit": _LANE_EVENTS}

    def link(event_id: str) -> str:
        return request.link(f"/event/{quote(event_id, safe='')}")

    def draw() -> Markup | None:
        rows = read_events(request, _SQL["coin_lanes"], values)
        former: dict[str, list[dict[str, Any]]] = {}
        for version in list_dates(request, [r["event_id"] for r in rows if r["version"] > 1]):
            version["from"] = version["known_from"]
            former.setdefault(version["event_id"], []).append(version)
        daily = prices.list_daily(coin, now - span, now) if prices else ()
        return draw_lanes(rows, former, now, link, daily)

    return keep_drawn(request, ("lanes", now, coin, request.as_of, request.zone), draw)


def _find_named(request: SiteRequest, text: str) -> list[dict[str, Any]]:
    """Return the coins that a text may mean, of those known at the time, the best rank first."""
    slugs = [coin.slug for coin in find_coins(request.reader, [text]).get(text, ())]
    return read_events(request, _SQL["named_coins"], {"coins": slugs}) if slugs else []


def show_search(request: SiteRequest) -> str | Response:
    """Return the coins and events that have the words `q`; the text of one coin leads to it."""
    given = request.text("q")
    if given is None:
        return RedirectResponse(request.link("/"), 303)
    named = _find_named(request, given)
    if named:  # The best rank is the first; the page of the coin offers the others.
        path, others = f"/coin/{quote(named[0]['coin'], safe='')}", given if named[1:] else None
        return RedirectResponse(request.link(path, coins=request.text("coins"), asked=others), 303)
    named_so = {"words": given.lower(), "limit": _FOUND_COINS}
    coins = read_events(request, _SQL["search_coins"], named_so)
    found = {"given": given, "at": request.moment, "limit": _EVENTS_SHOWN}
    events = read_events(request, _SQL["search_events"], found | {"words": given.split()})
    if len(events) == 1 and events[0]["matched"] == "id":
        return RedirectResponse(request.link(f"/event/{quote(given, safe='')}"), 303)
    prepared = prepare_events(request, events)
    for event in prepared:
        event["compared"] = "found", f"in the {event['matched']}"
    return render(
        "search.html",
        request,
        title=f"Search: {given}",
        coins=coins,
        events=prepared,
    )
