"""What the receiver answers to each kind of request, over loopback HTTP; what it then stores."""

import itertools
import json
from datetime import timedelta
from urllib.parse import urlencode

import pytest

from catalog.contract.constants import SIGNATURE_HEADER
from catalog.contract.signatures import sign
from pipeline.receiver.app import BODY_MAX
from tests.pipeline.receiver.programs import SECRET
from tests.pipeline.receiver.served import Answer, Headers, Served, request, signature
from tests.resources.inbox.deliveries import START, delivery

NEW = "whsec_that-replaces-it-0123456789"
numbers = itertools.count(1)


@pytest.fixture
def body() -> bytes:
    """A delivery that was not sent before."""
    return delivery(next(numbers))


def signed(body: bytes) -> Headers:
    return signature(body, at=START)


def reason(answer: Answer) -> tuple[int, str]:
    return answer.status, json.loads(answer.body)["error"]


def test_a_signed_delivery_is_stored_as_sent_and_answered_204(
    receiver: Served, body: bytes
) -> None:
    answer = receiver.post(body)
    assert (answer.status, answer.body) == (204, b"")
    found = receiver.stored()[0]
    assert (found.delivery_id, found.received_at) == (json.loads(body)["id"], START)


@pytest.mark.parametrize("later", [timedelta(0), timedelta(days=366)])
def test_a_replay_is_answered_204_and_changes_nothing(
    receiver: Served, body: bytes, later: timedelta
) -> None:
    receiver.post(body)
    before = receiver.stored()
    receiver.clock.instant += later
    assert receiver.post(body).status == 204
    assert receiver.stored() == before


@pytest.mark.parametrize(
    ("seconds", "status"), [(-301, 401), (-300, 204), (0, 204), (300, 204), (301, 401)]
)
def test_a_stamped_signature_is_accepted_within_300_s_of_the_service_s_time(
    receiver: Served, body: bytes, seconds: int, status: int
) -> None:
    before = receiver.count()
    at = START + timedelta(seconds=seconds)
    answer = receiver.send(request(body, signature(body, at=at, form="t,v1")))
    assert answer.status == status
    assert receiver.count() - before == (status == 204)
    if status == 401:
        assert reason(answer) == (401, "stale")


def test_milliseconds_in_place_of_seconds_are_stale(receiver: Served, body: bytes) -> None:
    stamp = f"{START.timestamp() * 1_000:.0f}"
    # Signed with the secret, as a sender does that has the wrong unit.
    digest = sign(f"{stamp}.".encode() + body, secrets=[SECRET], at=START)
    answer = receiver.send(request(body, [(SIGNATURE_HEADER, f"t={stamp},v1={digest}")]))
    assert reason(answer) == (401, "stale")


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("é" * 32, "malformed"),
        ("\udcff" * 64, "malformed"),
        ("", "malformed"),
        ("0" * 64, "mismatch"),
        ("t=1,v1=é", "malformed"),
        ("A" * 2_049, "malformed"),
    ],
)
def test_a_wrong_signature_of_any_bytes_is_401_and_stores_nothing(
    receiver: Served, body: bytes, value: str, why: str
) -> None:
    before = receiver.count()
    answer = receiver.send(request(body, [(SIGNATURE_HEADER, value)]))
    assert reason(answer) == (401, why)
    assert receiver.count() == before


def test_no_signature_is_401_and_so_are_two_headers_with_the_right_signature(
    receiver: Served, body: bytes
) -> None:
    before = receiver.count()
    assert reason(receiver.post(body, headers=())) == (401, "missing")
    assert reason(receiver.post(body, headers=[*signed(body), *signed(body)])) == (401, "several")
    assert receiver.count() == before


def test_a_secret_is_rotated_without_a_refused_delivery(receiver: Served) -> None:
    def status(*secrets: str) -> int:
        return receiver.post(delivery(next(numbers)), secrets=secrets).status

    assert (status(SECRET), status(NEW)) == (204, 401)
    receiver.secrets = (SECRET, NEW)
    assert (status(SECRET), status(SECRET, NEW), status(NEW)) == (204, 204, 204)
    receiver.secrets = (NEW,)
    assert (status(SECRET), status(SECRET, NEW), status(NEW)) == (401, 204, 204)


@pytest.mark.parametrize("chunks", [None, [1_000, 60_000]])
@pytest.mark.parametrize("size", [BODY_MAX, BODY_MAX + 1, 257 * 1_024, 4 * BODY_MAX])
def test_256_kib_are_accepted_and_a_byte_more_is_413(
    receiver: Served, size: int, chunks: list[int] | None
) -> None:
    before = receiver.count()
    text = f"{next(numbers)} ".encode()
    body = text + b"x" * (size - len(text))
    answer = receiver.send(request(body, signed(body), chunks=chunks))
    if size <= BODY_MAX:
        assert (answer.status, receiver.count()) == (204, before + 1)
    else:
        assert (*reason(answer), receiver.count()) == (413, "too large", before)


@pytest.mark.parametrize(
    ("lengths", "status"),
    [
        (["{}"], 204),
        (["{}", "{}"], 204),
        (["{}", "1"], 400),
        (["{}, {}"], 400),
        (["-1"], 400),
        (["+{}"], 400),
        (["1e2"], 400),
        ([""], 400),
        (["9" * 30], 400),
        # Less than was sent: what follows is the next request, and no signature of this one.
        ([], 401),
        (["0"], 401),
        (["10"], 401),
    ],
)
def test_a_length_that_is_absent_wrong_or_doubled_has_its_status(
    receiver: Served, body: bytes, lengths: list[str], status: int
) -> None:
    before = receiver.count()
    given = [length.format(*[len(body)] * 2) for length in lengths]
    assert receiver.send(request(body, signed(body), length=given)).status == status
    assert receiver.count() - before == (status == 204)


def test_a_body_shorter_than_its_length_is_400_and_stores_nothing(
    receiver: Served, body: bytes
) -> None:
    before = receiver.count()
    sent = request(body, signed(body), length=[str(len(body) + 1)])
    assert reason(receiver.send(sent, then="finish")) == (400, "incomplete")
    assert receiver.count() == before


def test_of_a_length_and_chunks_the_chunks_are_the_body(receiver: Served) -> None:
    for wrong in (0, -500, 10):
        body = delivery(next(numbers))
        given = [*signed(body), ("Content-Length", str(len(body) + wrong))]
        assert receiver.send(request(body, given, chunks=[10])).status == 204
        assert receiver.stored()[0].delivery_id == json.loads(body)["id"]


@pytest.mark.parametrize("chunks", [None, [100, 200]])
@pytest.mark.parametrize("then", ["finish", "leave", "reset"])
def test_a_request_that_is_cut_at_any_byte_stores_nothing(
    receiver: Served, body: bytes, then: str, chunks: list[int] | None
) -> None:
    before = receiver.count()
    whole = request(body, signed(body), chunks=chunks)
    head = whole.index(b"\r\n\r\n")
    step = 1 if then == "reset" else 23
    for cut in {*range(1, head, 23), *range(head, len(whole), step), len(whole) - 1}:
        answer = receiver.send(whole[:cut], then=then)
        assert answer.status in (0, 400, 408), cut
    assert receiver.count() == before
    assert receiver.send(whole).status == 204
    assert receiver.count() == before + 1


def test_a_sender_that_waits_for_100_continue_is_answered(receiver: Served, body: bytes) -> None:
    given = [*signed(body), ("Expect", "100-continue")]
    assert receiver.send(request(body, given)).status == 204


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"])
def test_other_methods_are_405_and_say_which_is_allowed(
    receiver: Served, body: bytes, method: str
) -> None:
    before = receiver.count()
    answer = receiver.send(request(body, signed(body), method=method))
    assert (answer.status, answer.headers["allow"]) == (405, "POST, GET, HEAD")
    assert receiver.count() == before


@pytest.mark.parametrize(
    "path", ["/", "/webhooks//", "/Webhooks", "//webhooks", "/webhooks%0a", "/healthz", "*"]
)
def test_other_paths_are_404(receiver: Served, body: bytes, path: str) -> None:
    before = receiver.count()
    assert reason(receiver.send(request(body, signed(body), path=path))) == (404, "not found")
    assert receiver.count() == before


@pytest.mark.parametrize("sent", [b"hello\r\n\r\n", bytes.fromhex("1603010200010001fc0303")])
def test_what_is_not_http_is_400(receiver: Served, sent: bytes) -> None:
    assert receiver.send(sent).status == 400


@pytest.mark.parametrize("odd", [b"", b"\xff\x00", b"[]", b'{"id": "odd", "type": "events.sung"}'])
def test_what_is_signed_but_unreadable_or_of_an_unknown_kind_is_204_and_listed(
    receiver: Served, odd: bytes
) -> None:
    before = receiver.count()
    assert receiver.post(odd).status == 204
    assert receiver.count() == before + 1
    assert (receiver.stored()[0].trouble is None) == odd.startswith(b"{")


def test_two_requests_sent_at_once_on_a_connection_are_answered_each(receiver: Served) -> None:
    before = receiver.count()
    first, second = delivery(next(numbers)), delivery(next(numbers))
    kept = request(first, signed(first)).replace(b"Connection: close\r\n", b"")
    answer = receiver.send(kept + request(second, signed(second)))
    assert answer.status == 204
    assert answer.body.startswith(b"HTTP/1.1 204")
    assert receiver.count() == before + 2


@pytest.mark.parametrize("path", ["/webhooks", "/webhooks/"])
def test_a_delivery_and_a_registration_probe_may_end_the_path_with_a_slash(
    receiver: Served, body: bytes, path: str
) -> None:
    before = receiver.count()
    for method in ("GET", "HEAD"):
        assert receiver.send(request(b"", method=method, path=path)).status == 200
    assert receiver.count() == before
    assert receiver.send(request(body, signed(body), path=path)).status == 204
    assert receiver.count() == before + 1


@pytest.mark.parametrize(
    ("method", "query", "sent", "is_signed"),
    [
        ("GET", "?challenge=abc-123_x.y~z", b"", False),
        ("GET", "?hub.mode=subscribe&hub.challenge=abc-123_x.y~z", b"", False),
        ("POST", "?challenge=abc-123_x.y~z", b"", False),
        ("POST", "", b'{"challenge": "abc-123_x.y~z"}', False),
        ("POST", "", b'{"token": "t", "challenge": "abc-123_x.y~z", "type": "verify"}', False),
        ("POST", "", b'{"challenge": "abc-123_x.y~z"}', True),
    ],
)
def test_a_challenge_is_sent_back_as_plain_text_and_nothing_is_stored(
    receiver: Served, method: str, query: str, sent: bytes, is_signed: bool
) -> None:
    before = receiver.count()
    headers = signed(sent) if is_signed else ()
    answer = receiver.send(request(sent, headers, method=method, path=f"/webhooks{query}"))
    assert (answer.status, answer.body) == (200, b"abc-123_x.y~z")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert receiver.count() == before


@pytest.mark.parametrize(
    "challenge",
    [
        "<script>alert(1)</script>",
        "a b",
        "a\r\nX: y",
        "",
        "é",
        "x" * 257,
        7,
        None,
        ["a"],
        {"a": "b"},
    ],
)
def test_a_challenge_that_is_no_plain_token_is_never_sent_back(
    receiver: Served, challenge: object
) -> None:
    if isinstance(challenge, str):
        query = urlencode({"challenge": challenge})
        asked = receiver.send(request(b"", method="GET", path=f"/webhooks?{query}"))
        assert json.loads(asked.body) == {"status": "receiving"}
    sent = json.dumps({"challenge": challenge}).encode()
    assert reason(receiver.send(request(sent))) == (401, "missing")


def test_a_body_without_a_signature_is_refused_before_it_arrives(receiver: Served) -> None:
    for headers in ((), [(SIGNATURE_HEADER, "0" * 63)], [("Other-Signature", "0" * 64)]):
        head = request(b"", headers, length=[str(BODY_MAX)])
        assert receiver.send(head).status == 401


def test_a_delivery_that_has_a_challenge_is_stored(receiver: Served, body: bytes) -> None:
    before = receiver.count()
    sent = json.dumps(json.loads(body) | {"challenge": "abc"}).encode()
    assert receiver.post(sent).status == 204
    assert receiver.count() == before + 1
