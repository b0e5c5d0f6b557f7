"""An export as typed rows: every odd form that is known, with independent counts."""

import csv
import gzip
import json

import pytest

from catalog.contract.records import EVENT_FIELDS
from tests.warehouse.normalise.catalog_bodies import (
    AT,
    BEFORE,
    PLAIN,
    BatchReader,
    csv_body,
    json_body,
    json_event,
    plain,
    plains,
)
from warehouse.normalise.csv_reader import KnownLists
from warehouse.schema.columns import ALL, BIT

MANY = plains(40)
KNOWN = KnownLists(frozenset({"Mainnet", "Release"}))


def test_a_row_is_typed_and_in_canonical_form(batches: BatchReader) -> None:
    text = plain(title=" A\r\nB ", categories="b; a ;;a", coins="", dateEnd="2026-10-09")
    batches.read("export", csv_body([text]))
    row = batches.only_row()
    assert row["position"] == 0
    assert row["event_id"] == "e1"
    assert row["title"] == "A\nB"
    assert row["categories"] == ["a", "b"]
    assert row["coins"] == []
    assert row["coin_names"] is None
    assert row["impact"] == 7.5
    assert row["impact_band"] == "Critical"
    assert row["is_estimated"] is False
    assert row["snapshot_url"] is None
    assert row["date_end"].isoformat() == "2026-10-09T00:00:00+00:00"
    assert row["observed_at"] == AT
    assert row["content_at"] == BEFORE
    assert row["status"] == "scheduled"
    assert row["shown"] == ALL
    assert row["extra"] is None


GOOD = {
    "CRLF": csv_body(MANY),
    "LF": csv_body(MANY, end="\n"),
    "CR": csv_body(MANY, end="\r"),
    "mixed line ends": csv_body(MANY).replace(b"\r\n", b"\n", 7),
    "BOM": b"\xef\xbb\xbf" + csv_body(MANY),
    "BOM and quotes": b"\xef\xbb\xbf" + csv_body(MANY, quoting=csv.QUOTE_ALL),
    "all quoted": csv_body(MANY, quoting=csv.QUOTE_ALL),
    "no last line end": csv_body(MANY).rstrip(),
    "blank lines": csv_body(MANY).replace(b"\r\n", b"\r\n\r\n"),
    "a lone CR": csv_body(MANY).replace(b"\r\n", b"\r", 7),
    "blank lines at the end": csv_body(MANY) + b"\r\n\r\n\r\n",
    "blank lines before the header": b"\r\n\r\n" + csv_body(MANY),
    "another order": csv_body(MANY, columns=EVENT_FIELDS[::-1]),
    "snake case": csv_body(MANY).replace(b"displayedDate", b"displayed_date", 1),
    "upper case": csv_body(MANY).replace(b"displayedDate", b"DISPLAYEDDATE", 1),
    "gzip": gzip.compress(csv_body(MANY)),
    "gzip in members": gzip.compress(csv_body(MANY)[:99]) + gzip.compress(csv_body(MANY)[99:]),
    "gzip with mixed line ends": gzip.compress(csv_body(MANY).replace(b"\r\n", b"\n", 7)),
    "joined with |": csv_body(MANY).replace(b";", b"|"),
    "joined with ,": csv_body([row | {"categories": "Release,Mainnet"} for row in MANY]),
    "JSON arrays": csv_body([row | {"categories": '["Release","Mainnet"]'} for row in MANY]),
    "JSON objects": csv_body(
        [
            row | {"categories": '[{"id":1,"name":"Release"},{"id":2,"name":"Mainnet"}]'}
            for row in MANY
        ]
    ),
    "a comma after the last column": csv_body(MANY)
    .replace(b"\r\n", b",\r\n")
    .replace(b"updatedAt,", b"updatedAt", 1),
    "a space before quotes": csv_body(MANY).replace(b"Goes live", b' "Goes live"'),
    "semicolons": csv_body(MANY, delimiter=";"),
    "tabs": csv_body(MANY, delimiter="\t", end="\r"),
    "a line sep=;": b"sep=;\r\n" + csv_body(MANY, delimiter=";"),
    "BOM and a line sep=": b"\xef\xbb\xbfsep=;\r\n" + csv_body(MANY, delimiter=";"),
    "a comment": b"# exported, 2026-03-02\n" + csv_body(MANY),
    "UTF-16": csv_body(MANY, delimiter="\t").decode().encode("utf-16"),
    "UTF-16, big end first": b"\xfe\xff" + csv_body(MANY).decode().encode("utf-16-be"),
    "gzip of UTF-16": gzip.compress(csv_body(MANY, delimiter=";").decode().encode("utf-16")),
    "gzip with an empty member": gzip.compress(b"") + gzip.compress(csv_body(MANY)),
    "empty columns and rows": csv_body(MANY).replace(b"\r\n", b",,\r\n") + b",,,\r\n" * 3,
}


NOTES = {
    "BOM": "BOM",
    "gzip": "gzip",
    "semicolons": "fields separated by ';'",
    "UTF-16": "UTF-16",
    "another order": "columns in another order",
    "joined with |": "lists joined with |",
    "joined with ,": "lists joined with ,",
    "a lone CR": "read by the tolerant reader",
}


def test_every_form_of_the_same_rows_gives_the_same_rows_and_is_noted(batches: BatchReader) -> None:
    batches.read("export", csv_body(MANY))
    expected = batches.seen()
    for name, body in GOOD.items():
        read = batches.read("export", body, known=KNOWN)
        assert (read.arrived, read.good, read.rejected) == (40, 40, 0), name
        assert read.quarantine is None, name
        assert batches.seen() == expected, name
        assert name not in NOTES or any(note.startswith(NOTES[name]) for note in read.notes), name


def test_missing_columns_are_unknown_and_unknown_ones_are_kept(batches: BatchReader) -> None:
    columns = ["mood", "id", "title", "date", "Zeal"]
    row = {"id": "1", "title": "t", "date": "2026-01-01", "mood": 'so "so"', "Zeal": ""}
    read = batches.read("export", csv_body([row], columns=columns))
    seen = batches.only_row()
    assert seen["shown"] == BIT["title"] | BIT["date"]
    assert json.loads(seen["extra"]) == {"Zeal": None, "mood": 'so "so"'}
    assert seen["categories"] is None
    assert "unknown columns: Zeal, mood" in read.notes


def test_json_in_place_of_csv_is_read_and_noted(batches: BatchReader) -> None:
    batches.read("export", csv_body([PLAIN]))
    expected = batches.only_row()["content_hash"]
    read = batches.read("export", json_body([json_event()]))
    assert read.good == 1
    assert "JSON in place of CSV" in read.notes
    assert batches.only_row()["content_hash"] == expected


NO_CATALOG = {
    "an empty body": b"",
    "HTML": b"<!doctype html><title>Sign in</title>",
    "a JSON error": b'{"error":{"code":"internal","message":"no"}}',
    "a JSON message": b'{"message":"Forbidden"}',
    "a bare header": csv_body([]),
    "plain words": b"service unavailable",
    "no id": csv_body(MANY, columns=EVENT_FIELDS[1:]),
    "no title and no date": csv_body(MANY, columns=["id", "slug"]),
    "a column twice": csv_body(MANY, columns=(*EVENT_FIELDS, "title")),
    "a column twice in other spelling": csv_body(MANY, columns=(*EVENT_FIELDS, "date_end")),
    "gzip cut off": gzip.compress(csv_body(MANY))[:-20],
    "gzip of nothing": gzip.compress(b""),
    "NUL alone": b"\0" * 50,
    "UTF-16 without its mark": csv_body(MANY).decode().encode("utf-16-le"),
    "UTF-16 cut off": csv_body(MANY).decode().encode("utf-16")[:-1],
    "a workbook": b"PK\x03\x04" + csv_body(MANY),
    "ids that a spreadsheet rounded": csv_body([row | {"id": "1,23457E+17"} for row in MANY]),
}


@pytest.mark.parametrize("body", NO_CATALOG.values(), ids=NO_CATALOG)
def test_a_body_that_is_not_a_catalog_is_quarantined(batches: BatchReader, body: bytes) -> None:
    read = batches.read("export", body)
    assert read.quarantine is not None
    assert batches.seen() == []


BROKEN_ROWS = {
    "a column short": (b"x,y\r\n", "expected 18 columns, got 2"),
    "a column over": (b"," * 18 + b"x\r\n", "expected 18 columns, got 19"),
    "bytes that are not UTF-8": (
        csv_body([plain(title="caf\udce9")]).split(b"\r\n", 1)[1],
        "not UTF-8",
    ),
    "NUL": (
        csv_body([plain(title="a\0b")]).split(b"\r\n", 1)[1],
        "a text contains the character NUL",
    ),
    "an open quote": (b'e9,"never closed\r\nx,y\r\n', "opens a quote that is never closed"),
}


@pytest.mark.parametrize(("row", "reason"), BROKEN_ROWS.values(), ids=BROKEN_ROWS)
def test_a_broken_row_is_rejected_alone(batches: BatchReader, row: bytes, reason: str) -> None:
    read = batches.read("export", csv_body(MANY) + row)
    assert (read.arrived, read.good, read.rejected) == (41, 40, 1)
    assert read.quarantine is None
    ((position, words, _raw),) = batches.rejected()
    assert position == 40
    assert reason in words


@pytest.mark.parametrize(
    ("cell", "found"),
    [
        ('["Release", null, "Mainnet; Beta", 7]', ["7", "Mainnet; Beta", "Release"]),
        ('[{"name": "Release"}, {"id": 3}, {"slug": "beta"}]', ["3", "Release", "beta"]),
        ('["not JSON"', ['["not JSON"']),
        ("[]", []),
    ],
)
def test_a_json_array_is_a_list(batches: BatchReader, cell: str, found: list[str]) -> None:
    batches.read("export", csv_body([plain(categories=cell)]))
    assert batches.only_row()["categories"] == found


def test_a_json_array_with_a_coin_without_a_slug_rejects_its_row(batches: BatchReader) -> None:
    cells = ['[{"slug": "bitcoin", "name": "Bitcoin"}]', '[{"name": "Ether"}]', '[["solana"]]']
    rows = [plain(id=f"e{number}", coins=cell) for number, cell in enumerate(cells)]
    read = batches.read("export", csv_body(rows))
    assert (read.good, read.rejected) == (1, 2)
    assert batches.only_row()["coins"] == ["bitcoin"]
    assert {reason for _, reason, _ in batches.rejected()} == {
        "coins: expected a slug in each coin of the JSON array"
    }


def test_a_record_whose_quote_hides_others_is_rejected_with_its_line(batches: BatchReader) -> None:
    lines = csv_body(MANY).split(b"\r\n")
    lines[5] = lines[5].replace(b"Goes live", b'"Goes live, and')
    lines[9] = lines[9].replace(b"Large", b'Large"')
    read = batches.read("export", b"\r\n".join(lines))
    assert (read.arrived, read.good, read.rejected) == (36, 35, 1)
    ((position, reason, _raw),) = batches.rejected()
    assert position == 4
    assert reason.startswith("line 6 opens a quote, and line 7, which would be inside of it")


def test_the_raw_text_of_a_rejected_row_is_cut(batches: BatchReader) -> None:
    batches.read("export", csv_body([plain(date="x", description="long " * 50_000)]))
    ((_, reason, raw),) = batches.rejected()
    assert reason.endswith("(raw text cut behind its id)")
    assert len(raw) == 65_536


@pytest.mark.parametrize(
    ("bad", "arrived", "quarantined"),
    [(9, 9, False), (10, 10, True), (10, 1_000, False), (11, 1_000, True)],
)
def test_over_one_percent_and_at_least_ten_rejected_rows_quarantine_the_batch(
    batches: BatchReader, bad: int, arrived: int, quarantined: bool
) -> None:
    rows = [*plains(arrived - bad), *(plain(date="x") for _ in range(bad))]
    read = batches.read("export", csv_body(rows))
    assert (read.arrived, read.rejected) == (arrived, bad)
    assert (read.quarantine is not None) is quarantined
    assert len(batches.seen()) == arrived - bad


def test_duplicates_are_kept_and_counted(batches: BatchReader) -> None:
    read = batches.read("export", csv_body([PLAIN, PLAIN, plain(id="e2"), PLAIN]))
    assert (read.good, read.duplicates) == (4, 2)
