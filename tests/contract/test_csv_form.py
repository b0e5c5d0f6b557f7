"""The export reads back, with any RFC 4180 reader, to what was written."""

import csv
import io
from datetime import UTC, datetime, timedelta

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import UNSET, structs

from catalog.contract.openapi import EXAMPLE
from catalog.contract.records import (
    EVENT_FIELDS,
    HEADER,
    Event,
    EventCoin,
    encode_rows,
    instant_text,
)

TEXTS = st.text(st.characters(exclude_categories=["Cs"])) | st.text(alphabet='\r\n",; é🚀\0')
NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters=";"), min_size=1)
INSTANTS = st.integers(-30_000_000_000, 250_000_000_000).map(
    lambda epoch_s: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=epoch_s)
)
OPTIONAL = st.none() | TEXTS
EVENTS = st.builds(
    Event,
    **dict.fromkeys(("id", "title", "displayed_date", "date_type"), TEXTS),
    **dict.fromkeys(("slug", "description", "impact_summary"), OPTIONAL),
    **dict.fromkeys(("source_url", "snapshot_url"), OPTIONAL),
    **dict.fromkeys(("date_end", "last_verified_at"), st.none() | INSTANTS),
    **dict.fromkeys(("created_at", "updated_at"), st.none() | INSTANTS),
    date=INSTANTS,
    is_estimated=st.booleans(),
    categories=st.just(UNSET) | st.none() | st.lists(NAMES).map(tuple),
    coins=st.lists(st.builds(EventCoin, slug=NAMES, symbol=TEXTS, name=TEXTS)).map(tuple),
    impact=st.none() | st.floats(0, 10) | st.sampled_from(["Low", "Critical"]),
)


def read(data: bytes) -> list[dict[str, str]]:
    """Read a whole export as its users do."""
    return list(csv.DictReader(io.StringIO(data.decode("utf-8"), newline=""), strict=True))


def as_text(value: object) -> str:
    """Return the cell that a JSON value should have."""
    if isinstance(value, list | tuple):
        return ";".join(each["slug"] if isinstance(each, dict) else each for each in value)
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


@given(events=st.lists(EVENTS, max_size=4), cut=st.integers(0, 4))
@example(events=[structs.replace(EXAMPLE, title='"', description="\r")], cut=0)
@example(events=[structs.replace(EXAMPLE, title="two\r\nlines", description="=1+1, →")], cut=1)
def test_every_value_reads_back_as_in_json(events: list[Event], cut: int) -> None:
    data = HEADER + encode_rows(events)
    expected = [
        {name: as_text(msgspec.to_builtins(event).get(name)) for name in EVENT_FIELDS}
        for event in events
    ]
    assert read(data) == expected
    assert data == HEADER + encode_rows(events[:cut]) + encode_rows(events[cut:])


def test_columns_are_the_fields_of_an_event_in_order_and_lines_end_with_crlf() -> None:
    data = HEADER + encode_rows([EXAMPLE, EXAMPLE])
    assert data.startswith((",".join(EVENT_FIELDS) + "\r\nevt_").encode())
    assert data.count(b"\r\n") == data.count(b"\n") == 3
    row = read(data)[0]
    assert (row["categories"], row["coins"]) == ("Upgrade;Mainnet", "bitcoin")
    assert (row["date"], row["isEstimated"]) == ("2026-10-08T00:00:00Z", "false")
    assert instant_text(datetime(2026, 10, 8, 12, 30, 15, 999_999, UTC)) == "2026-10-08T12:30:15Z"
