"""The header of an export, read from its bytes alone."""

import pytest

from almanac.reading.csv_file import Record, RecordReader
from catalog.contract.records import HEADER
from warehouse.normalise.csv_reader import Columns, make_columns


def header(text: str) -> Columns:
    return make_columns(next(iter(RecordReader([text.encode()])), Record([], None)).cells)


def test_the_contracts_own_header_needs_no_note() -> None:
    columns = header(HEADER.decode())
    assert list(columns.notes()) == []
    assert columns.fault() is None
    assert columns.places["event_id"] == 0
    assert not columns.extras


@pytest.mark.parametrize(
    ("text", "column", "place"),
    [
        ("id,title,displayed_date\n", "displayed_date", 2),
        ("ID,Title,DISPLAYEDDATE\n", "displayed_date", 2),
        ("title,event_id\n", "event_id", 1),
        ("id,title,impactBand\n", "impact_band", 2),
        ('\ufeff"id",title\n', "event_id", 0),
        ('"id"\r\n', "event_id", 0),
        ("\n\nid,title\n", "title", 1),
    ],
)
def test_columns_are_found_by_name_in_any_spelling(text: str, column: str, place: int) -> None:
    assert header(text).places[column] == place


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("title,date\n", "no column id"),
        ("", "no column id"),
        ("id,slug\n", "neither a column title nor a column date"),
        ("id,title,title\n", "columns that occur twice: title, title"),
        ("id,title,displayedDate,displayed_date\n", "displayedDate, displayed_date"),
        ("id,date,x,X\n", "columns that occur twice: x, X"),
        ("id,title\n", None),
        ("id,date\n", None),
        ("id,date,,\n", None),
    ],
)
def test_a_header_without_event_columns_is_a_fault(text: str, fault: str | None) -> None:
    found = header(text).fault()
    assert found is None if fault is None else fault in (found or "")


def test_other_orders_and_columns_are_noted() -> None:
    columns = make_columns(["title", "id", "mood", ""])
    first, second, third = columns.notes()
    assert first == "columns in another order"
    assert second.startswith("missing columns: slug, description, ")
    assert third == "unknown columns: column 4, mood"
