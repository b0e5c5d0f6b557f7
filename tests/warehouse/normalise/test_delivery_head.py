"""The head of a delivery: read from any bytes, and never the id of its event for its own."""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.warehouse.normalise.catalog_bodies import json_event
from warehouse.normalise.json_feeds import DeliveryHead, delivery_head


def body_of(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def test_an_event_under_data_leaves_the_delivery_its_own_id() -> None:
    body = body_of(id="evt_dlv_1", type="events.updated", data=json_event(id="e1"))
    assert delivery_head(body) == DeliveryHead("evt_dlv_1", "events.updated", "e1")


@pytest.mark.parametrize(
    "body",
    [
        body_of(type="event.updated", **json_event(id="e1")),
        body_of(id="e1", type="event.updated", data=json_event(id="e1")),
    ],
    ids=["at the top level", "both ids are the same"],
)
def test_the_id_of_an_event_is_never_that_of_its_delivery(body: bytes) -> None:
    assert delivery_head(body) == DeliveryHead(None, "event.updated", "e1")


@pytest.mark.parametrize(
    "own_id", ["", "x" * 201, "é" * 101, "a\0b", "\ud800", 5, True, None, ["a"], float("nan")]
)
def test_an_id_that_cannot_be_stored_as_it_is_counts_as_none(own_id: Any) -> None:
    head = delivery_head(body_of(id=own_id, type="events.updated", data=json_event(id="e1")))
    assert (head.delivery_id, head.event_id, head.why_unreadable) == (None, "e1", None)


def test_an_unknown_type_is_readable_and_needs_no_event() -> None:
    assert delivery_head(b'{"id":"d1","type":"ping","data":{}}') == DeliveryHead("d1", "ping")
    assert delivery_head(b'{"type":"ping"}') == DeliveryHead(None, "ping")
    long = delivery_head(body_of(id="d1", type="x" * 10_000, data=None))
    assert long == DeliveryHead("d1", "x" * 80)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "an empty body"),
        (b"<html>", "an HTML page"),
        (b"{", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b"\x1f\x8b\x00", "a gzip body that is cut off"),
        (b"[]", "expected an object, got '[]'"),
        (b"{}", "type: expected the type of a delivery"),
        (body_of(type=["x"]), "type: expected the type of a delivery"),
        (body_of(type="event.updated", data=None), "expected an object, got 'null'"),
        (body_of(type="event.updated", data={}), "id: expected a text, but it is missing"),
        (body_of(type="event.updated", data={"id": "x" * 201}), "id: expected a text of at most"),
        (body_of(type="event.updated", data={"id": {}}), "id: expected a text, got"),
        (body_of(type="event.updated", data=dict.fromkeys(map(str, range(1_001)))), "expected at"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_what_is_wrong_with_the_form_is_stated(body: bytes, why: str) -> None:
    assert str(delivery_head(body).why_unreadable).startswith(why)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)
_ENVELOPES = st.fixed_dictionaries(
    {},
    optional={
        "id": _JSON,
        "type": st.sampled_from(["event.created", "events.high-impact"]) | _JSON,
        "data": _JSON | st.fixed_dictionaries({"id": _JSON}),
    },
)


@given(body=st.binary() | (_ENVELOPES | _JSON).map(lambda value: json.dumps(value).encode()))
@example(body=b'{"id":"\xff","type":"\xff","data":{"id":"\xff"}}')
@example(body=b"\xef\xbb\xbf{}")
def test_any_bytes_have_a_head_whose_texts_can_be_stored(body: bytes) -> None:
    head = delivery_head(body)
    texts = (head.delivery_id, head.kind, head.event_id, head.why_unreadable)
    for text in filter(None, texts):
        assert "\0" not in text.encode().decode()
