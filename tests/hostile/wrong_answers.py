"""Lists, look-ups, cancellations and deliveries that are none, or break the contract.

Belongs here: the bodies, each with its expected outcome. Does not: landing and checking them.
"""

import json
from typing import Any

from tests.hostile.cases import Case, Cases, MakeCase
from tests.hostile.good_days import Good, at_case, page, text
from warehouse.landing.batches import Feed, Scope

_HTML = b"<html><body>login, please</body></html>"
_ERROR = b'{"error":{"code":"forbidden","message":"not you"}}'


def _no_list(feed: Feed, body: bytes, says: str) -> MakeCase:
    return lambda good, number: Case(feed=feed, bodies=(body,), status="quarantined", says=says)


def changed(good: Good, number: int) -> list[dict[str, Any]]:
    """Return the rows of the list, one of them with a new title."""
    rows = [dict(row) for row in good.listed]
    row = rows[number % len(rows)]
    row["title"] = f"{row['title']}, changed by case {number}"
    row["updatedAt"] = text(at_case(number))
    return rows


def _one_page_wrong(good: Good, number: int) -> Case:
    """A page that is no list makes the whole batch untrusted."""
    pages = (page(changed(good, number)[:20]), _HTML)
    return Case(
        feed="events", bodies=pages, status="quarantined", says="page 2 is an HTML", arrived=20
    )


def _cut_list(good: Good, number: int) -> Case:
    body = page(changed(good, number))
    return Case(
        feed="events", bodies=(body[: len(body) // 2],), status="quarantined", says="no JSON"
    )


def _bad_rows(*harms: Any) -> MakeCase:
    """Rows that can't be read among good ones."""

    def make(good: Good, number: int) -> Case:
        rows: list[Any] = changed(good, number)
        proper = (page(rows[len(harms) :]),)
        for place, harm in enumerate(harms):
            rows[place] = {**rows[place], **harm} if isinstance(harm, dict) else harm
        return Case(
            feed="events", bodies=(page(rows),), proper=proper, whole=False, claims=False,
            rejected=len(harms),
        )  # fmt: skip

    return make


def _forms(good: Good, number: int) -> Case:
    """A byte order mark, a bare array, names in another spelling, an id that occurs twice."""
    rows = changed(good, number)
    spelt = [dict(row) for row in rows]
    for row in spelt:
        row["displayed_date"] = row.pop("displayedDate")
    body = b"\xef\xbb\xbf" + json.dumps([*spelt, spelt[0]]).encode()
    return Case(
        feed="events", bodies=(body,), proper=(page(rows),), duplicates=1, arrived=len(rows) + 1
    )


def _hidden(good: Good, number: int) -> Case:
    """Fields that are absent keep their values."""
    rows = changed(good, number)
    bare = [{k: v for k, v in row.items() if k not in ("impact", "description")} for row in rows]
    return Case(feed="events", bodies=(page(bare),), proper=(page(rows),))


def _look_up(http: int, body: bytes, says: str) -> MakeCase:
    def make(good: Good, number: int) -> Case:
        scope = Scope(event_id=good.listed[number % len(good.listed)]["id"])
        return Case(
            feed="event", bodies=(body,), http=http, scope=scope, status="quarantined",
            says=says, rejected=1, arrived=1,
        )  # fmt: skip

    return make


def _bad_cancellations(good: Good, number: int) -> Case:
    right = [{"id": "0" * 24, "cancelledAt": text(at_case(number))}]
    wrong = [{"id": None}, {"id": "1" * 24, "cancelledAt": "never"}, "cancelled", [1]]
    return Case(
        feed="cancellations", bodies=(page([*wrong, *right]),), proper=(page(right),), whole=False,
        rejected=4,
    )  # fmt: skip


def _bad_coins(good: Good, number: int) -> Case:
    right = [{"slug": "bitcoin", "symbol": "BTC", "name": "Bitcoin", "rank": 1, "tracked": True}]
    wrong = [{"slug": ""}, {"slug": "x", "rank": 1.5}, {"slug": "y", "peakImpact": "nan"}, None]
    return Case(
        feed="coins", bodies=(page([*right, *wrong]),), proper=(page(right),), whole=False,
        rejected=4,
    )  # fmt: skip


def _delivery(kind: Any, data: Any, at: str) -> bytes:
    return json.dumps({"id": "d1", "type": kind, "createdAt": at, "data": data}).encode()


def _unknown_deliveries(good: Good, number: int) -> Case:
    row, at = changed(good, number)[number % len(good.listed)], text(at_case(number))
    right = _delivery("event.updated", row, at)
    strange = [_delivery(kind, row, at) for kind in ("event.sung", "coin.created", "")]
    return Case(
        feed="deliveries", bodies=(*strange, right), proper=(right,), ignored=3,
        says="deliveries of an unknown type",
    )  # fmt: skip


def _garbage_deliveries(good: Good, number: int) -> Case:
    row, at = changed(good, number)[number % len(good.listed)], text(at_case(number))
    right = _delivery("event.updated", row, at)
    garbage = (
        *(b"", _HTML, b"null", b"[]", b"{}", right[:-9], b"\xff\xfe\x00"),
        _delivery("event.updated", None, at),
        _delivery("event.updated", row, "not a time"),
    )
    return Case(feed="deliveries", bodies=(*garbage, right), proper=(right,), rejected=len(garbage))


def _only_garbage(good: Good, number: int) -> Case:
    return Case(feed="deliveries", bodies=(b"{}",) * 10, rejected=10)


WRONG_ANSWERS: Cases = {
    "a list that is HTML is quarantined": _no_list("events", _HTML, "HTML"),
    "a list that is a JSON error is quarantined": _no_list("events", _ERROR, "not you"),
    "a list without a list is quarantined": _no_list("events", b'{"data":null}', "without a list"),
    "an empty list body is quarantined": _no_list("events", b"", "empty body"),
    "a list with one page that is no list is quarantined": _one_page_wrong,
    "a truncated list is quarantined": _cut_list,
    "rows of a list that can't be read are rejected": _bad_rows(
        {"impact": float("nan")}, {"impact": 1e308 * 10}, {"date": None}, {"title": "a\0b"},
        {"id": {}}, {"coins": 7}, None, "row",
    ),
    "other forms of a list are read": _forms,
    "fields that are absent keep their values": _hidden,
    "a look-up answered with HTML is quarantined": _look_up(200, _HTML, "HTML"),
    "a look-up not found as HTML is quarantined": _look_up(404, _HTML, "HTML"),
    "a look-up answered with an error is quarantined": _look_up(200, _ERROR, "not you"),
    "a look-up of another status is quarantined": _look_up(500, b"{}", "status 500"),
    "cancellations that can't be read are rejected": _bad_cancellations,
    "coins that can't be read are rejected": _bad_coins,
    "categories that are HTML are quarantined": _no_list("categories", _HTML, "HTML"),
    "coins that are an error are quarantined": _no_list("coins", _ERROR, "not you"),
    "deliveries of unknown types are kept and ignored": _unknown_deliveries,
    "garbage among deliveries is rejected": _garbage_deliveries,
    "deliveries that are all garbage are rejected one by one": _only_garbage,
}  # fmt: skip
