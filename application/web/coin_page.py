"""The list of coins, and the page of one coin: its events, and what changed lately."""

from math import ceil
from typing import Any, Final
from urllib.parse import quote

from almanac.digest import TITLES
from almanac.errors import InvalidArgument
from almanac.reading.named_sql import NamedStatements
from almanac.safe_text import cut_line
from application.web.pages import PageProblem, SiteRequest, coin_problems, format_moment, render
from application.web.upcoming_page import prepare_events, read_page

_SQL = NamedStatements("application.web")
ON_A_PAGE: Final = 100
_EVENTS_SHOWN: Final = 60
_PAST_SHOWN: Final = 20
_CHANGES_SHOWN: Final = 30


def show_coins(request: SiteRequest) -> str:
    """Return the page of the coins known at the time, by rank; `q` searches."""
    page, words = read_page(request), request.text("q")
    values = {
        "at": request.moment,
        "words": None if words is None else words.lower(),
        "first": (page - 1) * ON_A_PAGE,
        "limit": ON_A_PAGE,
    }
    coins = request.reader.rows(_SQL["coin_list"], values)
    if page > 1 and not coins:
        raise InvalidArgument(f"page={page}: there are fewer pages. Begin with the first.")
    total = coins[0]["total"] if coins else 0
    pages = ceil(total / ON_A_PAGE)
    return render(
        "coins.html", request, title="Coins", coins=coins, total=total, page=page, pages=pages
    )


def show_coin(request: SiteRequest) -> str:
    """Return the page of a coin, by its slug; a ticker or name stands for its one coin."""
    given = request.parameters["slug"]
    values: dict[str, Any] = {"coin": given, "at": request.moment}
    facts = request.reader.rows(_SQL["coin_facts"], values)
    if not facts:
        with coin_problems(lambda coin: request.link(f"/coin/{quote(coin.slug, safe='')}")):
            values["coin"] = request.database.resolve(given).slug
        facts = request.reader.rows(_SQL["coin_facts"], values)
    if not facts:
        shown = cut_line(given, 60)
        time = f"{request.moment:%Y-%m-%d %H:%M} UTC"
        raise PageProblem("Unknown coin", f"The coin {shown!r} was not known at {time}.", 404)
    (coin,) = facts
    limits = {"limit": _EVENTS_SHOWN, "past_limit": _PAST_SHOWN}
    rows = request.reader.rows(_SQL["coin_events"], {**values, **limits})
    events = prepare_events(request, rows)
    upcoming = [event for event in events if event["is_upcoming"]]
    past = [event for event in events if not event["is_upcoming"]]
    changes = request.reader.rows(_SQL["coin_changes"], {**values, "limit": _CHANGES_SHOWN + 1})
    return render(
        "coin.html",
        request,
        title=coin["name"] or values["coin"],
        slug=values["coin"],
        coin=coin,
        observed=format_moment(coin["observed_at"]),
        exact=[event for event in upcoming if event["is_exact"]],
        opened=[event for event in upcoming if not event["is_exact"]],
        upcoming_shown=len(upcoming),
        upcoming_total=upcoming[0]["total"] if upcoming else 0,
        past=past,
        past_total=past[0]["total"] if past else 0,
        changes=changes[:_CHANGES_SHOWN],
        kinds=TITLES,
        has_more_changes=len(changes) > _CHANGES_SHOWN,
    )
