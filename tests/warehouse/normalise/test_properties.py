"""For any events: the same content from every feed and every reader, and no crash."""

import csv
import io
from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb
import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from almanac.core.errors import WarehouseError
from catalog.contract.plans import PLANS, ImpactView, Plan, impact_band
from catalog.contract.records import EVENT_FIELDS, HEADER, Delivery, Event, EventCoin, encode_rows
from tests.history.stories.example_counts import examples
from tests.warehouse.normalise.catalog_bodies import AT, BatchReader, csv_body, plain
from warehouse.normalise.csv_reader import CsvExport
from warehouse.normalise.normalise import NormalisedBatch
from warehouse.normalise.rows import clean

TEXT = st.text(
    alphabet=st.one_of(
        st.sampled_from(' \t\n\r\v\f",;|[]{}\\\'"\x1a\x7f\x85\xa0\u2028\ufeff'),
        st.characters(exclude_categories=["Cs"], exclude_characters="\0"),
    ),
    max_size=12,
)
NAME = TEXT.map(lambda text: text.strip(" \t\n\r\v\f")).filter(bool)
WORD = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0;|,["), max_size=6)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
INSTANT = st.integers(-2_208_988_800, 7_289_567_999).map(
    lambda seconds: EPOCH + timedelta(seconds=seconds)
)
"""From 1900 to 2200."""
COIN = st.builds(EventCoin, slug=WORD.map(lambda word: f"c{word}"), symbol=TEXT, name=TEXT)
EVENT = st.builds(
    Event,
    id=NAME,
    slug=TEXT,
    title=NAME,
    description=st.none() | TEXT,
    displayed_date=TEXT,
    date=INSTANT,
    date_end=st.none() | INSTANT,
    date_type=TEXT,
    is_estimated=st.booleans(),
    categories=st.lists(WORD, max_size=3).map(tuple),
    coins=st.lists(COIN, max_size=3).map(tuple),
    impact=st.none() | st.floats(0, 10),
    impact_summary=st.none() | TEXT,
    source_url=st.none() | TEXT,
    snapshot_url=st.none() | TEXT,
    last_verified_at=st.none() | INSTANT,
    created_at=INSTANT,
    updated_at=INSTANT,
)


@pytest.fixture(scope="module")
def batches(
    tmp_path_factory: pytest.TempPathFactory, connection: duckdb.DuckDBPyConnection
) -> BatchReader:
    return BatchReader(tmp_path_factory.mktemp("landing"), connection)


def gated(event: Event, plan: Plan) -> Event:
    """Return an event as a plan shows it, by the table of the contract."""
    hidden: dict[str, Any] = {
        field.name: msgspec.UNSET if field.name == "categories" else None
        for field in msgspec.structs.fields(Event)
        if not plan.shows(field.encode_name)
    }
    if plan.impact is ImpactView.BANDED and isinstance(event.impact, float):
        hidden["impact"] = impact_band(event.impact)
    return msgspec.structs.replace(event, **hidden)


def contents(batches: BatchReader) -> list[dict[str, Any]]:
    own = ("coin_names", "content_at", "observed_at")
    return [{key: row[key] for key in row if key not in own} for row in batches.seen()]


def delivery_forms(event: Event) -> list[bytes]:
    """Return an event as each form of a delivery."""
    fields = msgspec.json.decode(msgspec.json.encode(event))
    forms: list[Any] = [
        Delivery("d", "events.updated", "2025-10-01", AT, event),
        {"id": "d", "type": "event.updated", "createdAt": AT, "data": event},
        {"type": "events.high-impact", "createdAt": AT, "deliveredAt": AT, "data": event},
        {**fields, "type": "event.created", "deliveredAt": AT},
    ]
    return [msgspec.json.encode(form) for form in forms]


@examples(4, 500)
@given(events=st.lists(EVENT, min_size=1, max_size=4), plan=st.sampled_from(list(PLANS.values())))
def test_an_event_has_the_same_content_by_export_list_and_delivery(
    batches: BatchReader, events: list[Event], plan: Plan
) -> None:
    shown = [gated(event, plan) for event in events]
    listed = msgspec.json.encode({"data": shown, "meta": {}})
    batches.read("events", listed, plan=plan.name)
    by_list = contents(batches)
    assert [row["event_id"] for row in by_list] == [clean(event.id) for event in events]
    for bodies in zip(*map(delivery_forms, shown), strict=True):
        batches.read("deliveries", bodies, plan=plan.name)
        assert contents(batches) == by_list
    # The export writes no categories on Free; the plan hides them in either case.
    if plan.name != "free":
        batches.read("export", HEADER + encode_rows(shown), plan=plan.name)
        assert contents(batches) == by_list


@given(event=EVENT, other=EVENT)
def test_other_contents_have_other_digests(
    batches: BatchReader, event: Event, other: Event
) -> None:
    batches.read("events", msgspec.json.encode([event, other]))
    first, second = batches.seen()
    own = {"position", "event_id", "last_verified_at", "updated_at", "content_hash", "coin_names"}
    same = all(first[name] == second[name] for name in first.keys() - own)
    assert (first["content_hash"] == second["content_hash"]) is same


@st.composite
def good_files(draw: st.DrawFn) -> bytes:
    """A file of good rows, with any order of columns, quoting, line ends and list separators."""
    columns = draw(st.permutations([*EVENT_FIELDS, "mood"]))
    join = draw(st.sampled_from(";|,"))
    texts = st.fixed_dictionaries(
        {},
        optional={
            **{name: TEXT for name in ("slug", "description", "displayedDate", "mood")},
            "title": NAME,
            "impact": st.sampled_from(["", " 7", "0.1", "high", "5e-1"]),
            "date": st.sampled_from(["2026-01-01", " 2026-01-01T00:00+01:00 "]),
            "isEstimated": st.sampled_from(["1", "No ", ""]),
            "categories": st.lists(WORD, max_size=3).map(join.join),
            "coins": st.lists(WORD, max_size=3).map(join.join),
        },
    )
    rows = draw(st.lists(texts, min_size=1, max_size=5))
    end = draw(st.sampled_from(["\n", "\r\n", "\r"]))
    quoting = draw(st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]))
    if quoting == csv.QUOTE_MINIMAL and end != "\r\n":
        # The writer quotes only its own line end.
        other = "\r" if end == "\n" else "\n"
        rows = [{name: cell.replace(other, end) for name, cell in row.items()} for row in rows]
    body = csv_body([plain(**row) for row in rows], columns=columns, end=end, quoting=quoting)
    body = draw(st.sampled_from([b"", b"\xef\xbb\xbf"])) + body
    return draw(st.sampled_from([body, body.removesuffix(end.encode()), body + end.encode()]))


@examples(4, 500)
@given(body=good_files())
def test_both_readers_of_a_good_file_agree(batches: BatchReader, body: bytes) -> None:
    quick = batches.read("export", body)
    expected = batches.seen()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CsvExport, "_read_records", lambda *_, **__: None)
        tolerant = batches.read("export", body)
    assert [
        (name, row[name], other[name])
        for row, other in zip(expected, batches.seen(), strict=True)
        for name in row
        if row[name] != other[name]
    ] == []
    assert tolerant.arrived == quick.arrived == quick.good
    records = csv.reader(io.StringIO(body.decode("utf-8-sig"), newline=""))
    assert quick.arrived == sum(1 for cells in records if cells) - 1


def is_accounted(read: NormalisedBatch) -> bool:
    return read.good + read.rejected + read.ignored == read.arrived or read.quarantine is not None


FEEDS = ("export", "events", "event", "cancellations", "coins", "categories", "deliveries")
SEEDS = (
    HEADER,
    csv_body([plain(), plain(id="2", description='a "b",\nc')]),
    b'{"data":[{"id":"a","title":"t","date":"2026-01-01","coins":[{"slug":"b"}]}],"meta":{}}',
    b'{"id":"d","type":"event.updated","createdAt":"2026-01-01T00:00:00Z","data":{"id":"a"}}',
    b'[{"id":"a","cancelledAt":"2026-01-01"}]',
    b'[{"slug":"a","rank":1,"peakImpact":2.5}]',
    b"\x1f\x8b\x08\x00\x00\x00\x00\x00",
    b"<html>",
)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A known body with bytes removed, inserted or inverted; or any bytes."""
    body = bytearray(draw(st.sampled_from(SEEDS) | st.binary(max_size=40)))
    for _ in range(draw(st.integers(0, 4))):
        place = draw(st.integers(0, len(body)))
        end = place + draw(st.integers(0, 6))
        piece = st.binary(max_size=4) | st.sampled_from([b'"', b",", b"\n", b"\r", b"\0", b"]"])
        body[place:end] = draw(piece)
    return bytes(body)


@given(
    feed=st.sampled_from(FEEDS),
    bodies=st.lists(damaged(), max_size=3),
    status=st.sampled_from([200, 200, 404, 410, 500]),
)
@example(feed="export", bodies=[HEADER[:20], HEADER[20:]], status=200)
@example(feed="deliveries", bodies=[b"{}", b'{"type":"x"}', b'{"type":[]}'], status=200)
def test_any_bytes_are_accounted_for(
    batches: BatchReader, feed: Any, bodies: list[bytes], status: int
) -> None:
    try:
        read = batches.read(feed, bodies, status=status)
    except WarehouseError:
        return
    assert is_accounted(read)
    if read.quarantine is None:
        assert len(batches.rejected()) == read.rejected
