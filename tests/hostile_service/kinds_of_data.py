"""Kinds of tampering with JSON: rows, the object around them, the usage."""

import json
from random import Random
from typing import Any

from tests.hostile_service.answers import (
    Answer,
    Kind,
    Untrue,
    list_kind,
    meta_kind,
    rows_kind,
    usage_kind,
)
from warehouse.bounds import PAGE_BYTES

Row = dict[str, Any]


def put(name: str, key: str, value: Any) -> Kind:
    return rows_kind(name, lambda row, chance: {**row, key: value})


def in_text(name: str, text: str) -> Kind:
    """Return a kind that inserts a text into every text of a row but its keys and instants."""

    def change(row: Row, chance: Random) -> Row:
        texts = ("title", "description", "displayedDate", "name", "symbol", "impactSummary")
        return {
            key: f"{value} {text}" if key in texts and isinstance(value, str) else value
            for key, value in row.items()
        }

    return rows_kind(name, change)


def every_key(name: str, rename: Any) -> Kind:
    return rows_kind(name, lambda row, chance: {rename(key): row[key] for key in row})


def all_values(name: str, value: Any) -> Kind:
    return rows_kind(name, lambda row, chance: dict.fromkeys(row, value))


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def raw_value(name: str, raw: str) -> Kind:
    """Return a kind that writes JSON that Python's writer would not write."""

    def tamper(answer: Answer, chance: Random) -> None:
        document = answer.document()
        if isinstance(document, dict) and isinstance(document.get("data"), list):
            for row in document["data"]:
                if isinstance(row, dict) and chance.random() < 0.5:
                    row[chance.choice(("odd", "impact", "rank", "title"))] = "@@"
            answer.body = json.dumps(document).replace('"@@"', raw).encode()

    return Kind(name, "rows", tamper, "content")


def _duplicated_keys(answer: Answer, chance: Random) -> None:
    answer.body = answer.body.replace(b'"title":', b'"title":"another","title":')


def _repeated(document: dict[str, Any], *_: Any) -> dict[str, Any]:
    """Return a list of up to 20,000 rows.

    Rows that another kind of the day made large, such as a title of a million, are repeated to
    just over what the client reads of any page. 20,000 of them are 10 GB, and this process would
    have them in memory twice.
    """
    rows = document["data"]
    beyond = 1 + PAGE_BYTES // len(json.dumps(rows))
    return {**document, "data": (rows * min(2_000, beyond))[:20_000]}


def _many_coins(answer: Answer, chance: Random) -> None:
    document = answer.document()
    rows = document.get("data") if isinstance(document, dict) else None
    if isinstance(rows, list) and rows and isinstance(rows[0], dict):
        # One event only: this process has both what it sends and what it reads in memory.
        rows[0]["coins"] = [{"slug": f"c{n}"} for n in range(100_000)]
        answer.write(document)


def _renamed(answer: Answer, chance: Random) -> None:
    document = answer.document()
    if isinstance(document, dict) and isinstance(document.get("data"), list):
        answer.write({"items": document["data"], "meta": document.get("meta")})


def _says(kind: Kind, untrue: Untrue | None) -> Kind:
    return Kind(kind.name, kind.stage, kind.tamper, untrue)


def _without(key: str) -> Any:
    return lambda row, chance: {name: value for name, value in row.items() if name != key}


def _some_rows(document: Row, answer: Answer, chance: Random) -> Row:
    kept = [row for row in document["data"] if chance.random() < 0.6]
    return {**document, "data": kept}


def _an_error(document: Row, answer: Answer, chance: Random) -> Any:
    word = chance.choice(["[/x]", "\x1b]52;c;eA==\x07", "\ud800", "x" * 9_000, {"a": []}, 10**400])
    return {"error": {"message": word}}


ROWS = (
    put("id empty", "id", ""),
    put("id of 100 kB", "id", "x" * 100_000),
    put("id with controls", "id", "a\x00\x1b[2J\r\nb"),
    put("id a number", "id", 2**63),
    put("id of two events", "id", "the-same"),
    put("date of year 0", "date", "0000-01-01T00:00:00Z"),
    put("date of year 9999", "date", "9999-12-31T23:59:59Z"),
    put("date odd", "date", "2026-02-30T25:61:61+99:99"),
    put("dateEnd before date", "dateEnd", "1970-01-01T00:00:00Z"),
    put("updatedAt in the future", "updatedAt", "2199-01-01T00:00:00Z"),
    put("cancelledAt in the future", "cancelledAt", "2099-01-01T00:00:00Z"),
    put("impact beyond its range", "impact", 11),
    put("rank of 2^63", "rank", 2**63),
    put("coins nested", "coins", [[["bitcoin"]]]),
    Kind("100,000 coins", "rows", _many_coins, "content"),
    put("an unknown field, deeper", "odd", nested(800)),
    put("an unknown field of 1 MB", "odd", "y" * 1_000_000),
    put("a title of a million", "title", "t" * 1_000_000),
    rows_kind("20,000 unknown fields", lambda row, _: row | {f"k{n}": n for n in range(20_000)}),
    in_text("markup", "[/x] [bold]<b>&amp;</b> [link=file:///etc/passwd]"),
    in_text("terminal escapes", "\x1b]52;c;eA==\x07\x1b[2J\x9b31m"),
    in_text("NUL", "a\x00b"),
    in_text("half a surrogate pair", "\ud800 \udfff"),
    every_key("keys in capitals", str.upper),
    all_values("all values null", None),
    rows_kind("rows null", lambda row, _: None),
    rows_kind("rows without id", _without("id")),
    raw_value("NaN", "NaN"),
    raw_value("1e999999", "1e999999"),
    raw_value("a number of 5,000 digits", "9" * 5_000),
    raw_value("a trailing comma", '"x",'),
    Kind("keys that occur twice", "rows", _duplicated_keys, "content"),
)

LISTS = (
    meta_kind("total of 2^63", "total", lambda *_: 2**63),
    meta_kind("total negative", "total", lambda *_: -1),
    meta_kind("total too small", "total", lambda *_: 0),
    meta_kind("total too large", "total", lambda *_: 10_000),
    meta_kind("total growing", "total", lambda answer, _: answer.number * 1_000),
    meta_kind("cursor that repeats", "cursor", lambda *_: "same"),
    meta_kind("cursor that alternates", "cursor", lambda answer, _: "ab"[answer.number % 2]),
    meta_kind("cursor that is always new", "cursor", lambda answer, _: f"c{answer.number}"),
    meta_kind("cursor of 5 MB", "cursor", lambda *_: "x" * 5_000_000),
    meta_kind("cursor an object", "cursor", lambda answer, _: {"at": answer.number}),
    meta_kind("cursor with controls", "cursor", lambda *_: "a\r\nHost: evil\x00\ud800"),
    list_kind("no meta", lambda document, *_: {"data": document["data"]}),
    list_kind("a bare array", lambda document, *_: document["data"]),
    list_kind("data null", lambda document, *_: {**document, "data": None}),
    list_kind("no rows", lambda document, *_: {**document, "data": []}),
    list_kind("rows twice", lambda document, *_: {**document, "data": document["data"] * 2}),
    list_kind("rows 2,000 times", _repeated),
    list_kind("millions of values", lambda d, *_: {**d, "data": [0] * 2_500_000}),
    list_kind("some rows left out", _some_rows),
    list_kind("an error under 200", _an_error),
    list_kind("a list wrapped twice", lambda document, *_: {"data": document, "meta": {}}),
    Kind("another name for data", "list", _renamed, "absent"),
)

USAGE = (
    usage_kind("usage negative", {"used": -5, "remaining": -1, "limit": -100}),
    usage_kind("usage of 2^63", {"used": 2**63, "remaining": 2**200, "limit": 10**300}),
    usage_kind("usage as texts", {"used": "x", "remaining": "9" * 5_000, "limit": "1e400"}),
    usage_kind("usage all gone", {"used": 10, "remaining": 0, "limit": 10}),
    usage_kind("plan odd", {"plan": "[/x]\x1b[2J" + "p" * 9_000}),
    usage_kind("reset in year 9999", {"resetAt": "9999-12-31T23:59:59-14:00", "period": {}}),
    usage_kind("rate absurd", {"rate": 2**63, "burst": -1}),
)
