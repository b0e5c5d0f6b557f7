"""Verdicts on lists, single records, filters, cursors and errors."""

import re
from typing import Final

from catalog.contract import constants
from catalog.contract.bodies import is_wrapped, list_body
from pipeline.probe.inquiry import Reply, says_plan
from pipeline.probe.verdicts import (
    COIN_FIELDS,
    EVENT_FIELDS,
    Judge,
    Opinion,
    Replies,
    Unclear,
    accept,
    as_expected,
    compare,
    compare_names,
    reject,
    require,
)

DATE_TYPES: Final = frozenset({"date", "month", "quarter", "year"})
_SLUG: Final = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


def judge_list_form(name: str, *, meta: bool = True) -> Judge:
    def judge(replies: Replies) -> Opinion:
        value = replies.value(name)
        body = list_body(value)
        if body is None:
            keys = ", ".join(value) if isinstance(value, dict) else type(value).__name__
            return reject(f"an object with {keys}", "no list is found in it")
        if body.shape == "array":
            limited = meta and len(body.rows) >= constants.LIMIT_DEFAULT
            note = "a page names no next page: only its first rows are read" if limited else ""
            return (reject if limited else accept)("a bare array", note)
        if set(value) == {"data", "meta"}:
            return as_expected("`data` and `meta`")
        return accept(f"an object with {', '.join(value)}")

    return judge


def judge_category_ids(replies: Replies) -> Opinion:
    ids = [row.get("id") for row in replies.objects("categories")]
    if any(found is None for found in ids):
        return reject("rows without an id", "categories can't be a filter")
    shown = ", ".join(str(found) for found in ids[:3])
    if all(isinstance(found, int) or str(found).isdecimal() for found in ids):
        return accept(f"numbers, such as {shown}")
    slugs = all(isinstance(found, str) and _SLUG.fullmatch(found) for found in ids)
    return as_expected(f"slugs, such as {shown}") if slugs else accept(f"other texts: {shown}")


def judge_category_fields(replies: Replies) -> Opinion:
    return compare_names(replies.objects("categories"), ("id", "name"), "categories")


def judge_event_fields(replies: Replies) -> Opinion:
    rows = replies.objects("events")
    gated = "categories" if replies.plan in ("free", "") else ""
    return compare_names(rows, EVENT_FIELDS, "events", gated)


def judge_date_types(replies: Replies) -> Opinion:
    rows = replies.objects("events")
    if replies_large := replies.find("large_page"):
        rows = rows + [row for row in replies_large.rows() if isinstance(row, dict)]
    found = sorted({str(row.get("dateType")) for row in rows})
    return (as_expected if set(found) <= DATE_TYPES else accept)(", ".join(found))


def judge_coins_in_event(replies: Replies) -> Opinion:
    coins = [coin for row in replies.objects("events") for coin in row.get("coins") or ()]
    if not coins:
        raise Unclear("no event has a coin")
    if not all(isinstance(coin, dict) for coin in coins):
        return accept("texts")
    return compare_names(coins, ("slug", "symbol", "name"), "coins")


def judge_default_limit(replies: Replies) -> Opinion:
    body = list_body(replies.value("events"))
    stated = None if body is None else body.limit
    if stated is None:
        raise Unclear("no `meta.limit`")
    shown = str(stated)
    return compare(shown, str(constants.LIMIT_DEFAULT), "Almanac always sends a limit")


def judge_page_of_hundred(replies: Replies) -> Opinion:
    reply = replies.get("large_page")
    if reply.status in (400, 422):
        stated = re.search(r"\b(?:to|most|max\w*|than|<=?)\D{0,12}(\d{1,2})\b", _text(reply))
        size = stated[1] if stated else "50"
        return require(f"answered {reply.status}", "its lists fail without it", page_size=size)
    body = list_body(replies.value("large_page"))
    limit = None if body is None else body.limit
    rows = len(replies.good("large_page").rows())
    if limit is None:
        raise Unclear(f"{rows} rows, no `meta.limit`")
    if str(limit) == str(constants.EVENTS_LIMIT_MAX):
        return as_expected(f"{rows} rows, limit {limit}")
    return accept(f"limit {limit} was applied", "pages are as large as the service makes them")


def judge_above_maximum(replies: Replies) -> Opinion:
    reply = replies.get("larger_page")
    if reply.status == 200:
        body = list_body(reply.json())
        limit = None if body is None else body.limit
        return accept(f"200, limit {limit}", "Almanac requests at most 100")
    return compare(f"{reply.status}", "400")


def _text(reply: Reply) -> str:
    return reply.body[:2_000].decode("utf-8", "replace")


def judge_cursor_place(replies: Replies) -> Opinion:
    value = replies.value("page")
    body = list_body(value)
    if body is None:
        raise Unclear("no list")
    cursor = body.cursor
    if cursor in (None, ""):
        if len(body.rows) < 2:
            raise Unclear("the list has no second page")
        return reject("none", "only the first page of a list can be read")
    meta = value.get("meta") if isinstance(value, dict) else None
    if isinstance(meta, dict) and meta.get("cursor") == cursor:
        return as_expected("`meta.cursor`")
    places = [name for name, part in value.items() if part == cursor]
    places += [
        f"{outer}.{name}"
        for outer, part in value.items()
        if isinstance(part, dict)
        for name, inner in part.items()
        if inner == cursor or (isinstance(inner, str) and str(cursor) in inner)
    ]
    return accept(f"`{places[0]}`" if places else "another place")


def judge_cursor_form(replies: Replies) -> Opinion:
    body = list_body(replies.value("page"))
    cursor = None if body is None else body.cursor
    if cursor in (None, ""):
        raise Unclear("no cursor")
    if isinstance(cursor, int) or str(cursor).isdecimal():
        return accept(f"an offset, {cursor}", "rows that shift between pages are reconciled")
    return as_expected("opaque text") if isinstance(cursor, str) else accept("not a text")


def judge_second_page(replies: Replies) -> Opinion:
    first, second = replies.objects("page"), replies.objects("next_page")
    known = {str(row.get("id")) for row in first}
    repeated = sum(str(row.get("id")) in known for row in second)
    if repeated == len(second):
        return reject("the same rows again", "the cursor has no effect; lists stop early")
    return accept(f"{repeated} rows again") if repeated else as_expected("other rows")


def judge_total(replies: Replies) -> Opinion:
    body = list_body(replies.value("page"))
    total = None if body is None else body.total
    if total is None:
        return accept("absent", "a truncated list can't be detected by its total")
    return as_expected(f"{total}")


def judge_bounds(replies: Replies) -> Opinion:
    reply = replies.get("day")
    if reply.status in (400, 422):
        return reject(f"answered {reply.status}", "ranges of dates can't be requested")
    rows = [row for row in replies.good("day").rows() if isinstance(row, dict)]
    day, wanted = replies.values["event_day"], replies.values.get("event_id")
    if any(str(row.get("id")) == wanted for row in rows):
        return as_expected(f"{len(rows)} events of {day}, with the known one")
    body = list_body(reply.json())
    if body is not None and body.cursor not in (None, ""):
        raise Unclear("the day has more than one page")
    note = "the last day of a range may be missing"
    return reject(f"{len(rows)} events of {day}, without the known one", note)


def judge_filter_categories(replies: Replies) -> Opinion:
    reply = replies.get("category")
    if says_plan(reply):
        return as_expected(f"{reply.status} on this plan")
    total = _total_of(reply)
    every = _total_of(replies.get("events"))
    if reply.status != 200:
        return reject(f"answered {reply.status}", "ALMANAC_CATEGORIES can't be used")
    if total is not None and every is not None and total < every:
        return as_expected(f"{total} of {every} events")
    raise Unclear(f"{total} of {every} events")


def judge_filter_coins(replies: Replies) -> Opinion:
    slug = replies.values["coin"]
    reply = replies.good("coin_events")
    rows = [row for row in reply.rows() if isinstance(row, dict)]
    named = [
        any(isinstance(coin, dict) and coin.get("slug") == slug for coin in row.get("coins") or ())
        for row in rows
    ]
    if not rows:
        raise Unclear("no event of the coin")
    if all(named):
        return as_expected(f"{len(rows)} events, all of {slug}")
    return reject("events of other coins", "ALMANAC_COINS has no effect")


def _total_of(reply: Reply) -> int | None:
    body = list_body(reply.json())
    total = None if body is None else body.total
    return total if isinstance(total, int) else None


def judge_impact_filter(replies: Replies) -> Opinion:
    reply = replies.get("impact")
    if reply.status in (401, 402, 403):
        if replies.plan in ("elite", "enterprise"):
            return accept(f"{reply.status} on {replies.plan}", "Almanac does not use it")
        return as_expected(f"{reply.status} on this plan")
    rows = [row.get("impact") for row in replies.objects("impact")]
    scores = [score for score in rows if isinstance(score, int | float)]
    if scores and min(scores) >= 7.5 and scores == sorted(scores, reverse=True):
        return as_expected(f"{len(scores)} scores, the highest first")
    return accept("not filtered or not sorted so", "Almanac does not use it")


def judge_single(name: str) -> Judge:
    def judge(replies: Replies) -> Opinion:
        value = replies.value(name)
        if not isinstance(value, dict):
            return reject(type(value).__name__, "expected an object")
        return compare("wrapped in `data`" if is_wrapped(value) else "bare", "bare")

    return judge


def judge_error_form(replies: Replies) -> Opinion:
    reply = replies.get("unknown_event")
    value = reply.json()
    if reply.kind == "json" and isinstance(value, dict):
        inner = value.get("error")
        if isinstance(inner, dict) and "code" in inner and "message" in value:
            return as_expected("`error` with `code`, and `message`")
        return accept(f"JSON with {', '.join(value)}")
    note = "decided by the status; an HTML 404 does not count as a withdrawal"
    return accept({"html": "HTML", "text": "plain text"}.get(reply.kind, reply.kind), note)


def judge_unknown_event(replies: Replies) -> Opinion:
    reply = replies.get("unknown_event")
    if reply.status == 200:
        return reject("200", "an unknown event looks like an event")
    known = reply.status in (404, 410)
    note = "a withdrawn event can't be told from a wrong request"
    return (
        as_expected("404")
        if reply.status == 404
        else (accept(f"{reply.status}") if known else reject(f"{reply.status}", note))
    )


def judge_status_of(name: str, expected: int, accepted: tuple[int, ...], note: str = "") -> Judge:
    def judge(replies: Replies) -> Opinion:
        status = replies.get(name).status
        if status == expected:
            return as_expected(f"{status}")
        if status in accepted:
            return accept(f"{status}")
        return Opinion("differs", f"{status}", "accepts" if not note else "unsupported", note)

    return judge


def judge_cancelled(replies: Replies) -> Opinion:
    reply = replies.get("cancelled_event")
    if reply.status == 410:
        value = reply.json()
        named = isinstance(value, dict) and "cancelledAt" in value
        return as_expected("410 with `cancelledAt`") if named else accept(f"410, {reply.kind}")
    note = "cancellations are known from their list alone"
    return accept(f"{reply.status}", note)


def judge_cancellation_fields(replies: Replies) -> Opinion:
    return compare_names(replies.objects("cancellations"), ("id", "cancelledAt"), "cancellations")


def judge_cancellations_since(replies: Replies) -> Opinion:
    rows = replies.objects("since")
    since = replies.values["cancelled_at"]
    times = [str(row.get("cancelledAt")) for row in rows]
    if min(times) < since:
        return accept(f"since {since} gives {min(times)}", "known cancellations are read again")
    if since in times:
        return as_expected(f"{len(rows)} rows since {since}, inclusive")
    return reject(f"{len(rows)} rows after {since}", "the bound is exclusive")


def judge_coin_limit(replies: Replies) -> Opinion:
    body = list_body(replies.value("coins"))
    limit = None if body is None else body.limit
    if limit is None:
        raise Unclear(f"{len(replies.good('coins').rows())} rows, no `meta.limit`")
    return compare(str(limit), str(constants.COINS_LIMIT_MAX))


def judge_coin_fields(replies: Replies) -> Opinion:
    return compare_names(replies.objects("coins"), COIN_FIELDS, "coins")


def judge_coin_search(replies: Replies) -> Opinion:
    part, slug = replies.values["coin_part"], replies.values["coin"]
    rows = [row for row in replies.good("coin_search").rows() if isinstance(row, dict)]
    if any(row.get("slug") == slug for row in rows):
        return as_expected(f"{part!r} finds {slug}")
    return accept(f"{part!r} does not find {slug}", "Almanac does not use it")
