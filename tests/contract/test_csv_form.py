"""The export reads back, with any RFC 4180 reader, to what was written."""

import csv
import io
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from catalog.contract.records import (
    EVENT_FIELDS,
    HEADER,
    LIST_SEPARATOR,
    Event,
    EventCoin,
    encode_rows,
    instant_text,
)

AT = datetime(2026, 10, 8, 12, 30, 15, tzinfo=UTC)
EVENT = Event(
    id="evt_1",
    slug="harbour-upgrade",
    title="Harbour upgrade",
    description=None,
    displayed_date="08 Oct",
    date=AT,
    date_end=None,
    date_type="date",
    is_estimated=False,
    created_at=AT,
    updated_at=AT,
)

TEXTS = st.text(st.characters(exclude_categories=["Cs"])) | st.text(alphabet='\r\n",; é🚀\0')
NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters=";"), min_size=1)
INSTANTS = st.integers(-30_000_000_000, 250_000_000_000).map(
    lambda epoch_s: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=epoch_s)
)
COINS = st.builds(EventCoin, slug=NAMES, symbol=TEXTS, name=TEXTS)
EVENTS = st.builds(
    Event,
    id=TEXTS,
    slug=TEXTS,
    title=TEXTS,
    description=st.none() | TEXTS,
    displayed_date=TEXTS,
    date=INSTANTS,
    date_end=st.none() | INSTANTS,
    date_type=TEXTS,
    is_estimated=st.booleans(),
    categories=st.just(UNSET) | st.lists(NAMES).map(tuple),
    coins=st.lists(COINS, max_size=4).map(tuple),
    impact=st.none() | st.floats(0, 10) | st.sampled_from(["Low", "Critical"]),
    impact_summary=st.none() | TEXTS,
    source_url=st.none() | TEXTS,
    snapshot_url=st.none() | TEXTS,
    last_verified_at=st.none() | INSTANTS,
    created_at=INSTANTS,
    updated_at=INSTANTS,
)


def read(data: bytes) -> list[dict[str, str]]:
    """Read a whole export as its users do."""
    rows = csv.reader(io.StringIO(data.decode("utf-8"), newline=""), strict=True)
    header = next(rows)
    return [dict(zip(header, row, strict=True)) for row in rows]


def read_row(event: Event) -> dict[str, str]:
    (row,) = read(HEADER + encode_rows([event]))
    return row


def as_text(value: object) -> str:
    """Return the cell that a JSON value should have."""
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def test_columns_are_the_fields_of_an_event_in_order() -> None:
    assert HEADER.decode() == ",".join(EVENT_FIELDS) + "\r\n"
    assert list(read_row(EVENT)) == list(EVENT_FIELDS)


@given(events=st.lists(EVENTS, max_size=4))
def test_every_value_reads_back_as_in_json(events: list[Event]) -> None:
    rows = read(HEADER + encode_rows(events))
    assert len(rows) == len(events)
    for event, row in zip(events, rows, strict=True):
        wire = msgspec.to_builtins(event)
        wire["categories"] = LIST_SEPARATOR.join(wire.get("categories", ()))
        wire["coins"] = LIST_SEPARATOR.join(coin["slug"] for coin in wire["coins"])
        assert row == {name: as_text(wire[name]) for name in EVENT_FIELDS}


@given(event=EVENTS)
def test_scores_read_back_to_the_last_digit(event: Event) -> None:
    text = read_row(event)["impact"]
    if isinstance(event.impact, float):
        assert float(text) == event.impact
    else:
        assert text == (event.impact or "")


@pytest.mark.parametrize(
    "text",
    [
        "two\nlines",
        "two\r\nlines",
        "an old\rline end",
        'a "quoted" word',
        "a; b; c",
        "a, b",
        " padded ",
        '"',
        '""',
        "\n",
        "→ ₿ 🚀 é",
        "﻿",
        "=1+1",
    ],
)
def test_awkward_text_survives(text: str) -> None:
    row = read_row(msgspec.structs.replace(EVENT, title=text, description=text))
    assert (row["title"], row["description"]) == (text, text)


def test_lists_are_joined_with_semicolons_names_for_categories_slugs_for_coins() -> None:
    coins = tuple(EventCoin(slug=s, symbol="x", name="X") for s in ("bitcoin", "ethereum"))
    row = read_row(msgspec.structs.replace(EVENT, categories=("Fork", "Main net"), coins=coins))
    assert (row["categories"], row["coins"]) == ("Fork;Main net", "bitcoin;ethereum")


def test_null_empty_and_absent_are_empty_fields() -> None:
    row = read_row(EVENT)
    empty = {name for name, value in row.items() if value == ""}
    assert empty == {
        *("description", "dateEnd", "categories", "coins", "impact", "impactSummary"),
        *("sourceUrl", "snapshotUrl", "lastVerifiedAt"),
    }


@given(events=st.lists(EVENTS, max_size=5), cut=st.integers(0, 5))
def test_rows_written_in_parts_are_the_rows_written_at_once(events: list[Event], cut: int) -> None:
    assert encode_rows(events[:cut]) + encode_rows(events[cut:]) == encode_rows(events)


def test_no_events_are_no_bytes() -> None:
    assert encode_rows([]) == b""


def test_lines_end_with_crlf_and_there_is_no_byte_order_mark() -> None:
    data = HEADER + encode_rows([EVENT, EVENT])
    assert data.startswith(b"id,")
    assert data.count(b"\r\n") == data.count(b"\n") == 3


def test_an_instant_is_written_to_the_second_in_utc() -> None:
    assert instant_text(AT.replace(microsecond=999_999)) == "2026-10-08T12:30:15Z"
