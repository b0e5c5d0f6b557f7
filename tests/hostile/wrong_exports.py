"""Exports that are none, or break the contract.

Belongs here: the bodies, each with its expected outcome. Does not: landing and checking them.
"""

import csv
import io
import json
from collections.abc import Callable
from dataclasses import replace

from tests.hostile.cases import Case, Cases, MakeCase, arrived
from tests.hostile.good_days import Good, Row, as_event, page

_HTML = b"<!doctype html><html><body><h1>502 Bad Gateway</h1></body></html>"
_ERROR = b'{"error":{"code":"internal","message":"something broke"}}'


def _no_catalog(body: bytes, says: str) -> MakeCase:
    return lambda good, number: Case(bodies=(body,), status="quarantined", says=says)


def _other_form(form: Callable[[Good, bytes], bytes], says: str = "") -> MakeCase:
    """The same rows in another form: they are read like those of the usual form."""

    def make(good: Good, number: int) -> Case:
        proper = good.csv(good.changed(number))
        return Case(bodies=(form(good, proper),), proper=(proper,), says=says)

    return make


def _bad_rows(count: int, harm: Callable[[Row], None], *, quarantined: bool = False) -> MakeCase:
    """Some unreadable rows: the others are read, and the unreadable events are not missing."""

    def make(good: Good, number: int) -> Case:
        rows = good.changed(number)
        first = (number + 1) % (len(rows) - count)
        bad = rows[first : first + count]
        kept = [row for row in rows if row not in bad]
        proper = (good.csv(kept),)
        for row in bad:
            harm(row)
        body = good.csv(rows).replace(b"\xef\xbf\xbd", b"\xff\xfe")
        if quarantined:
            return Case(bodies=(body,), rejected=count, status="quarantined", says="can't be read")
        return Case(bodies=(body,), proper=proper, whole=False, rejected=count)

    return make


def _set(name: str, value: str) -> Callable[[Row], None]:
    return lambda row: row.update({name: value})


def _another_order(good: Good, proper: bytes) -> bytes:
    rows = _rows(good, proper)
    return good.csv(rows, [*good.header[::-1][3:], *good.header[-3:]])


def _rows(good: Good, body: bytes) -> list[Row]:
    return list(csv.DictReader(io.StringIO(body.decode(), newline="")))


def _mixed_line_ends(good: Good, proper: bytes) -> bytes:
    lines = [good.csv([row]).split(b"\r\n", 1)[1].removesuffix(b"\r\n") for row in
             _rows(good, proper)]  # fmt: skip
    ends = (b"\n", b"\r\n", b"\n", b"\n\n")
    body = b"".join(line + ends[number % len(ends)] for number, line in enumerate(lines))
    return ",".join(good.header).encode() + b"\n" + body


def _without_columns(good: Good, number: int) -> Case:
    gone = {"impact", "sourceUrl", "categories", "lastVerifiedAt"}
    rows = good.changed(number)
    body = good.csv(rows, [name for name in good.header if name not in gone])
    return Case(bodies=(body,), proper=(good.csv(rows),), says="missing columns")


def _more_columns(good: Good, number: int) -> Case:
    rows = [{**row, "venue": "Lisbon", "": "x"} for row in good.changed(number)]
    events = [as_event(row) | {"venue": "Lisbon", "column 3": "x"} for row in good.changed(number)]
    header = [*good.header[:2], "", "venue", *good.header[2:]]
    return Case(
        bodies=(good.csv(rows, header),), proper=(page(events),), says="unknown columns: column 3"
    )


def _twice(good: Good, number: int) -> Case:
    rows = good.changed(number)
    body = good.csv([*rows, *rows[10:30], rows[10]])
    return Case(bodies=(body,), proper=(good.csv(rows),), duplicates=21)


def _twice_and_different(good: Good, number: int) -> Case:
    """The row with the newer `updatedAt` applies, at any position."""
    newer = good.changed(number)
    older = {**newer[number], "title": "what it was", "updatedAt": good.rows[number]["updatedAt"]}
    for_sure = good.csv(newer)
    body = good.csv([*newer, older])
    return Case(bodies=(body,), proper=(for_sure,), duplicates=1)


def _cut(share: float) -> MakeCase:
    def make(good: Good, number: int) -> Case:
        rows = good.changed(number, good.rows[:number] + good.rows[number:])
        whole = good.csv(rows)
        kept = rows[: int(len(rows) * share)]
        cut = len(good.csv(kept)) + 60
        return Case(
            bodies=(whole[:cut],), proper=(good.csv(kept),), whole=False, rejected=1,
            says="only .* expected events arrived",
        )  # fmt: skip

    return make


def _half(good: Good, number: int) -> Case:
    rows = good.changed(number)
    kept = rows[: len(rows) // 2]
    return Case(
        bodies=(good.csv(kept),), proper=(good.csv(kept),), whole=False,
        says="only .* expected events arrived",
    )  # fmt: skip


def _nine_of_fifty(good: Good, number: int) -> Case:
    rows = good.changed(number)[: number + 50][-50:]
    for row in rows[:9]:
        row["date"] = "soon"
    return Case(
        bodies=(good.csv(rows),), proper=(good.csv(rows[9:]),), whole=False, rejected=9,
        says="only .* expected events arrived",
    )  # fmt: skip


def _unclosed_quote(good: Good, number: int) -> Case:
    rows = good.changed(number)
    kept = rows[:-3]
    for row in rows[-3:]:
        row |= {"title": "no quote", "description": "none here", "displayedDate": "soon"}
    body = good.csv(kept) + good.csv(rows[-3:]).split(b"\r\n", 1)[1].replace(b",", b',"', 1)
    return Case(bodies=(body,), proper=(good.csv(kept),), whole=False, rejected=1)


def _columns_twice(good: Good, number: int) -> Case:
    body = good.csv(good.changed(number), [*good.header, "title"])
    return Case(bodies=(body,), status="quarantined", says="columns that occur twice")


def _no_rows_of_ours(body: bytes) -> MakeCase:
    """Lines without a known column: each is an unreadable row."""
    case = Case(bodies=(body,), status="quarantined", says="no column id")
    return lambda good, number: replace(case, rejected=arrived(case))


def _json_in_place(good: Good, proper: bytes) -> bytes:
    return json.dumps({"data": [as_event(row) for row in _rows(good, proper)]}).encode()


WRONG_EXPORTS: Cases = {
    "an HTML page is quarantined": _no_catalog(_HTML, "HTML"),
    "a JSON error is quarantined": _no_catalog(_ERROR, "JSON error: something broke"),
    "an empty body is quarantined": _no_catalog(b"", "empty body"),
    "a body of blank lines is quarantined": _no_catalog(b"\r\n\n \n", "empty body"),
    "garbage is quarantined": _no_rows_of_ours(bytes(range(1, 256)) * 9),
    "a truncated gzip is quarantined": _no_catalog(b"\x1f\x8b\x08\x00\x00", "gzip"),
    "another CSV is quarantined": _no_rows_of_ours(b"name,amount\r\nrent,100\r\n"),
    "a column that occurs twice quarantines the batch": _columns_twice,
    "a header without rows is quarantined": lambda good, number: Case(
        bodies=(good.csv([]),), status="quarantined", says="header without rows"
    ),
    "columns in another order are read by name": _other_form(_another_order, "another order"),
    "mixed line ends are line ends": _other_form(_mixed_line_ends),
    "a byte order mark is no part of a name": _other_form(
        lambda good, proper: b"\xef\xbb\xbf" + proper, "BOM"
    ),
    "JSON in place of CSV is read": _other_form(_json_in_place, "JSON in place"),
    "columns that are missing keep their values": _without_columns,
    "additional columns are kept": _more_columns,
    "rows that occur twice are counted": _twice,
    "the newer of two rows of an event applies": _twice_and_different,
    "a NUL rejects its row": _bad_rows(1, _set("description", "be\0fore")),
    "bytes that are not UTF-8 reject their row": _bad_rows(2, _set("title", "\ufffd caf\ufffd")),
    "an impact of nan rejects its row": _bad_rows(3, _set("impact", "nan")),
    "an impact of 1e999 rejects its row": _bad_rows(2, _set("impact", "1e999")),
    "an invalid date rejects its row": _bad_rows(5, _set("date", "2026-02-30T00:00:00Z")),
    "a row without a title is rejected": _bad_rows(1, _set("title", "")),
    "two percent of unreadable rows quarantine the batch": _bad_rows(
        12, _set("createdAt", "yesterday"), quarantined=True
    ),
    "nine unreadable rows of fifty do not quarantine the batch": _nine_of_fifty,
    "a truncated body makes no event missing": _cut(0.5),
    "half of the rows makes no event missing": _half,
    "an unclosed quote rejects no more rows than necessary": _unclosed_quote,
}
