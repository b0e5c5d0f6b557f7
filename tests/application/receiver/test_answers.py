"""What the receiver answers to each kind of request, over loopback HTTP; what it then stores."""

import itertools
import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlencode

import pytest

from application.receiver import BODY_MAX
from catalog.contract.constants import SIGNATURE_HEADER
from resources.inbox import Inbox
from tests.application.receiver.served import Answer, Headers, Served, request, served, signature
from tests.resources.inbox.deliveries import START, Clock, delivery
from warehouse.home import Home

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
    assert body in receiver.stored()


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
        assert body in receiver.stored()


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
    assert answer.status == 405
    assert set(answer.headers["allow"].split(", ")) == {"POST", "GET", "HEAD"}
    assert receiver.count() == before


@pytest.mark.parametrize(
    "path", ["/", "/webhooks//", "/Webhooks", "//webhooks", "/webhooks%20", "/healthz", "*"]
)
def test_other_paths_are_404(receiver: Served, body: bytes, path: str) -> None:
    before = receiver.count()
    status = 405 if path == "/healthz" else 404
    assert receiver.send(request(body, signed(body), path=path)).status == status
    assert receiver.count() == before


@pytest.mark.parametrize("sent", [b"hello\r\n\r\n", bytes.fromhex("1603010200010001fc0303")])
def test_what_is_not_http_is_400(receiver: Served, sent: bytes) -> None:
    assert receiver.send(sent).status == 400


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


@pytest.mark.parametrize("name", ["challenge", "hub.challenge"])
def test_the_challenge_of_a_registration_is_sent_back_as_plain_text(
    receiver: Served, name: str
) -> None:
    target = f"/webhooks?hub.mode=subscribe&{name}=abc-123_x.y~z"
    answer = receiver.send(request(b"", method="GET", path=target))
    assert (answer.status, answer.body) == (200, b"abc-123_x.y~z")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "challenge", ["<script>alert(1)</script>", "a b", "a\r\nX: y", "", "é", "x" * 257]
)
def test_a_challenge_that_is_no_plain_token_is_never_sent_back(
    receiver: Served, challenge: str
) -> None:
    query = urlencode({"challenge": challenge})
    asked = receiver.send(request(b"", method="GET", path=f"/webhooks?{query}"))
    assert json.loads(asked.body) == {"status": "receiving"}


def test_a_body_without_a_signature_is_refused_before_it_arrives(receiver: Served) -> None:
    for headers in ((), [(SIGNATURE_HEADER, "0" * 63)], [("Other-Signature", "0" * 64)]):
        head = request(b"", headers, length=[str(BODY_MAX)])
        assert receiver.send(head).status == 401


def test_a_body_that_is_too_large_is_refused_before_it_arrives(receiver: Served) -> None:
    head = request(b"", [(SIGNATURE_HEADER, "0" * 64)], length=[str(BODY_MAX + 1)])
    assert reason(receiver.send(head)) == (413, "too large")


def test_a_delivery_that_cannot_be_stored_is_503_until_it_can(
    receiver: Served, body: bytes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def health() -> int:
        return receiver.send(request(b"", method="GET", path="/healthz")).status

    with monkeypatch.context() as patched:
        full = OSError(28, "No space left on device")
        patched.setattr("warehouse.files.storage.sync", raising(full))
        patched.setattr("resources.inbox.sync", raising(full))
        answer = receiver.post(body)
        assert (*reason(answer), answer.headers["retry-after"]) == (503, "not stored", "5")
        assert health() == 503
    assert health() == 200
    with monkeypatch.context() as patched:
        patched.setattr(Inbox, "store", raising(RuntimeError("unforeseen")))
        assert receiver.post(body).status == 503
    assert "No space left on device" in caplog.text
    assert "RuntimeError: unforeseen" in caplog.text
    assert body not in receiver.stored()
    assert receiver.post(body).status == 204


def raising(error: Exception) -> Callable[..., None]:
    def fail(*given: object, **named: object) -> None:
        raise error

    return fail


def test_a_secret_that_cannot_be_read_refuses_nothing_for_good(
    receiver: Served, body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(receiver, "secrets", ())
        assert receiver.post(body).status == 503
    assert receiver.post(body).status == 204


def test_refused_requests_are_logged_once_a_minute_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = [0.0]
    monkeypatch.setattr("application.receiver.monotonic", lambda: now[0])
    with served(Home(tmp_path), Clock()) as receiver:
        for seconds in (0.0, 30.0, 59.0, 60.0):
            now[0] = seconds
            receiver.post(b"{}", headers=())
    lines = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert lines == ["Refused requests: 1 missing.", "Refused requests: 3 missing."]
