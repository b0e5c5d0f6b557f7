"""Lists of events as typed rows: keys, plans, pages, and every odd row."""

import gzip
from typing import Any

import pytest

from tests.warehouse.normalise.catalog_bodies import BatchReader, json_body, json_event, page
from warehouse.errors import DamagedBatch
from warehouse.normalise.normalise import normalise
from warehouse.schema.columns import ALL, BIT, NAMES, find_plan, mask_shown_fields


def test_rows_of_all_pages_are_in_order_of_arrival(batches: BatchReader) -> None:
    bodies = [
        page(json_event(id="a"), json_event(id="b")),
        json_body([json_event(id="c")]),
        json_body({"data": [json_event(id="d")]}),
        page(),
    ]
    read = batches.read("events", bodies)
    assert [(row["position"], row["event_id"]) for row in batches.seen()] == [
        *((0, "a"), (1, "b"), (2, "c"), (3, "d"))
    ]
    assert (read.arrived, read.good, read.quarantine) == (4, 4, None)
    assert read.notes == ("a bare array", "a list without meta")


def test_labels_of_coins_are_read_with_their_slugs(batches: BatchReader) -> None:
    coins = [{"slug": "b ", "symbol": "B", "name": "Bee"}, {"slug": "a"}]
    batches.read("events", page(json_event(coins=coins), json_event(coins=["z", "y"])))
    first, second = batches.seen()
    assert first["coins"] == ["a", "b"]
    assert first["coin_names"] == [
        {"slug": "a", "symbol": None, "name": None},
        {"slug": "b", "symbol": "B", "name": "Bee"},
    ]
    assert second["coins"] == ["y", "z"]
    assert second["coin_names"] is None


@pytest.mark.parametrize("plan", ["free", "standard", "pro", "elite", "enterprise"])
def test_a_field_that_the_plan_hides_is_unknown(batches: BatchReader, plan: str) -> None:
    batches.read("events", page(json_event(impact="High" if plan == "pro" else 7.5)), plan=plan)
    row = batches.only_row()
    assert row["shown"] == mask_shown_fields(find_plan(plan))
    assert all(row[name] in (None, []) for name in NAMES if not row["shown"] & BIT[name])


def test_an_absent_key_is_unknown_and_a_null_is_known_to_be_empty(batches: BatchReader) -> None:
    absent = json_event()
    del absent["description"], absent["categories"], absent["impact"]
    empty = json_event(description=None, categories=None, impact=None)
    batches.read("events", page(absent, empty, json_event(description="", impact="")))
    first, second, third = batches.seen()
    gone = BIT["description"] | BIT["categories"] | BIT["impact"] | BIT["impact_band"]
    assert first["shown"] == ALL & ~gone
    assert first["categories"] is None
    assert second["shown"] == third["shown"] == ALL
    assert second["categories"] == []
    assert second["impact"] is second["impact_band"] is None


IMPACTS = [
    # plan, keys, impact, band, known
    ("elite", {"impact": 7.4}, 7.4, "High", "both"),
    ("elite", {"impact": "7.4"}, 7.4, "High", "both"),
    ("elite", {"impact": "critical"}, None, "Critical", "band"),
    ("elite", {"impact": None}, None, None, "both"),
    ("elite", {"impact": None, "impactBand": "Low"}, None, "Low", "band"),
    ("elite", {"impact": 1, "impactBand": "Low"}, 1.0, "Low", "both"),
    ("pro", {"impact": "High"}, None, "High", "band"),
    ("pro", {"impact": " mid "}, None, "Mid", "band"),
    ("pro", {"impactBand": "LOW"}, None, "Low", "band"),
    ("pro", {"impact": None}, None, None, "both"),
    ("pro", {"impact": ""}, None, None, "both"),
    ("pro", {"impact": 3}, 3.0, "Mid", "both"),
    ("pro", {}, None, None, "none"),
    ("standard", {"impact": 3}, None, None, "none"),
    ("standard", {"impact": "nonsense"}, None, None, "none"),
]


@pytest.mark.parametrize(("plan", "keys", "impact", "band", "known"), IMPACTS)
def test_an_impact_is_a_score_or_a_band(
    batches: BatchReader,
    plan: str,
    keys: dict[str, Any],
    impact: float | None,
    band: str | None,
    known: str,
) -> None:
    event = json_event()
    del event["impact"]
    assert batches.read("events", page(event | keys), plan=plan).good == 1
    row = batches.only_row()
    bits = {"both": BIT["impact"] | BIT["impact_band"], "band": BIT["impact_band"], "none": 0}
    assert (row["impact"], row["impact_band"]) == (impact, band)
    assert row["shown"] & (BIT["impact"] | BIT["impact_band"]) == bits[known]


def test_unknown_fields_are_kept_as_json_with_sorted_keys(batches: BatchReader) -> None:
    batches.read("events", page(json_event(zeal=[1, {"b": None, "a": "é"}], mood=None)))
    assert batches.only_row()["extra"] == '{"mood":null,"zeal":[1,{"a":"é","b":null}]}'


def test_the_names_of_categories_are_read_from_objects(batches: BatchReader) -> None:
    batches.read("events", page(json_event(categories=[{"id": "x", "name": "X"}, {"id": 3}])))
    assert batches.only_row()["categories"] == ["3", "X"]


HOSTILE = [
    (b'{"id":"a","title":"t","date":"2026-01-01","title":"last"}', None),
    (b'{"id":5,"title":6,"date":"2026-01-01"}', None),
    (b'{"id":"a","title":"t","date":"2026-01-01","x":1e999}', None),
    (b'{"id":"a","title":"t","date":"2026-01-01","x":' + b"9" * 400 + b"}", None),
    (b'{"id":"a","title":"t","date":"2026-01-01","x":' + b"[" * 300 + b"]" * 300 + b"}", None),
    (b'{"id":"a","title":"\\\\u0000","date":"2026-01-01"}', None),
    (b'{"id":"a","title":"t","date":"2026-01-01","impact":NaN}', "impact: expected a number"),
    (b'{"id":"a","title":"t","date":"2026-01-01","impact":1e999}', "impact: expected a number"),
    (b'{"id":"a","title":"t","date":"2026-01-01","impact":11}', "impact: expected a number"),
    (b'{"id":"a","title":"t\\u0000","date":"2026-01-01"}', "a text contains the character NUL"),
    (b'{"id":"a","title":"\\ud800","date":"2026-01-01"}', "half of a surrogate pair"),
    (b'{"id":"a","title":"t","date":"2026-01-01","x":"\\ud800"}', "half of a surrogate pair"),
    (b'{"id":"a","title":"caf\xe9","date":"2026-01-01"}', "not UTF-8"),
    (b'{"id":"a","title":{"en":"t"},"date":"2026-01-01"}', "title: expected a text, got"),
    (b'{"id":"a","title":"t","date":["2026-01-01"]}', "date: expected a text, got"),
    (b'{"id":"a","title":"t","date":1791417600}', "date: expected an instant"),
    (b'{"id":"a","title":"t"}', "date: expected an instant of 1900 to 2200, but it is missing"),
    (b'{"id":"a","title":null,"date":"2026-01-01"}', "title: expected a text, but it is missing"),
    (b'{"title":"t","date":"2026-01-01"}', "id: expected a text, but it is missing"),
    (b'{"id":"a","title":"t","date":"2026-01-01","coins":3}', "coins: expected a list, got '3'"),
    (b'{"id":"a","title":"t","date":"2026-01-01","coins":[{"symbol":"x"}]}', "coins: expected a"),
    (b'{"id":"a","title":"t","date":"2026-01-01","categories":[[1]]}', "categories: expected a"),
    (b'"a text"', "expected an object, got '\"a text\"'"),
    (b"{}", "id: expected a text, but it is missing"),
]


@pytest.mark.parametrize(("row", "reason"), HOSTILE)
def test_an_odd_row_is_read_or_rejected_and_affects_no_other(
    batches: BatchReader, row: bytes, reason: str | None
) -> None:
    good = json_body(json_event(id="good"))
    read = batches.read("events", b'{"data":[' + row + b"," + good + b'],"meta":{}}')
    assert read.arrived == 2
    assert read.quarantine is None
    assert [event["event_id"] for event in batches.seen()][-1] == "good"
    found = [words for _, words, _ in batches.rejected()]
    if reason is None:
        assert (read.good, found) == (2, [])
    else:
        assert (read.good, len(found)) == (1, 1)
        assert reason in found[0]


NO_LIST = [
    (b"", "an empty body"),
    (b"<html>", "an HTML page"),
    (b'{"error":{"message":"no"}}', "a JSON error: no"),
    (b'{"data":{"id":"a"}}', "JSON without a list"),
    (b'{"data":[', "no JSON"),
    (b"[" * 5_000, "no JSON"),
    (b"3", "JSON without a list"),
    (b"\xff\xfe", "no JSON"),
]


@pytest.mark.parametrize(("body", "reason"), NO_LIST)
def test_a_page_without_a_list_quarantines_the_batch_and_the_others_are_read(
    batches: BatchReader, body: bytes, reason: str
) -> None:
    read = batches.read("events", [page(json_event()), body])
    assert read.good == 1
    assert read.quarantine is not None
    assert read.quarantine.startswith(f"page 2 is {reason}")


def test_an_empty_list_is_valid(batches: BatchReader) -> None:
    for body in (page(), b"[]", b"\xef\xbb\xbf[]", gzip.compress(b"[]")):
        read = batches.read("events", body)
        assert (read.arrived, read.quarantine) == (0, None), body


def test_many_rows_pass_in_chunks_and_keep_their_places(batches: BatchReader) -> None:
    events = [json_event(id=f"e{number}") for number in range(20_000)]
    events[9_000]["date"] = "x"
    read = batches.read("events", page(*events))
    assert (read.arrived, read.good, read.rejected) == (20_000, 19_999, 1)
    assert batches.rejected()[0][0] == 9_000
    assert all(row["event_id"] == f"e{row['position']}" for row in batches.seen())


def test_bytes_that_differ_from_the_landed_ones_raise_an_error(batches: BatchReader) -> None:
    manifest = batches.land("events", page(json_event()))
    other = batches.land("events", page())
    batches.landing.body_path(manifest).write_bytes(batches.landing.body_path(other).read_bytes())
    with pytest.raises(DamagedBatch):
        normalise(batches.connection, batches.landing, manifest)
