"""What the receiver answers to each kind of request, over loopback HTTP; what it then stores."""

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from application.receiver import BODY_MAX
from catalog.contract.constants import SIGNATURE_HEADER
from tests.application.receiver.served import Answer, Headers, Served, request, served, signature
from tests.hangs import HANGS_AFTER_S
from tests.warehouse.inbox.deliveries import START, Clock, delivery
from warehouse.home import Home
from warehouse.landing.inbox import Inbox

numbers = itertools.count(1)


@pytest.fixture
def body() -> bytes:
    """A delivery that was not sent before."""
    return delivery(next(numbers))


def signed(body: bytes) -> Headers:
    return signature(body, at=START)


def reason(answer: Answer) -> tuple[int, str]:
    return answer.status, json.loads(answer.body)["error"]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("é" * 32, "malformed"),
        ("", "malformed"),
        ("0" * 64, "mismatch"),
        ("A" * 2_049, "malformed"),
    ],
)
def test_a_wrong_signature_of_any_bytes_is_401_and_stores_nothing(
    receiver: Served, body: bytes, value: str, why: str
) -> None:
    before = receiver.count()
    answer = receiver.send(request(body, [(SIGNATURE_HEADER, value)]))
    assert reason(answer) == (401, why)
    assert reason(receiver.post(body, headers=())) == (401, "missing")
    assert reason(receiver.post(body, headers=[*signed(body), *signed(body)])) == (401, "several")
    assert receiver.count() == before


@pytest.mark.parametrize("chunks", [None, [1_000, 60_000]])
@pytest.mark.parametrize("size", [BODY_MAX, BODY_MAX + 1])
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
        (["{}", "{}"], 204),
        (["{}", "1"], 400),
        (["{}, {}"], 400),
        (["-1"], 400),
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


@pytest.mark.parametrize(
    ("then", "chunks"), [("finish", None), ("leave", [100, 200]), ("reset", None)]
)
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


@pytest.mark.parametrize("path", ["/", "/webhooks//", "/Webhooks", "/healthz"])
def test_other_paths_are_404(receiver: Served, body: bytes, path: str) -> None:
    before = receiver.count()
    status = 405 if path == "/healthz" else 404
    assert receiver.send(request(body, signed(body), path=path)).status == status
    refused = receiver.send(request(body, signed(body), method="PUT"))
    assert refused.status == 405
    assert set(refused.headers["allow"].split(", ")) == {"POST", "GET", "HEAD"}
    assert receiver.count() == before


def test_a_service_that_registers_the_endpoint_gets_200(receiver: Served) -> None:
    for method, path in (("HEAD", "/webhooks/"), ("GET", "/webhooks")):
        assert receiver.send(request(b"", method=method, path=path)).status == 200


def test_a_body_without_a_signature_is_refused_before_it_arrives(receiver: Served) -> None:
    for headers in ((), [(SIGNATURE_HEADER, "0" * 63)], [("Other-Signature", "0" * 64)]):
        head = request(b"", headers, length=[str(BODY_MAX)])
        assert receiver.send(head).status == 401


def test_a_delivery_that_cannot_be_stored_is_503_until_it_can(
    receiver: Served, body: bytes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def health() -> int:
        return receiver.send(request(b"", method="GET", path="/healthz")).status

    with monkeypatch.context() as patched:
        full = OSError(28, "No space left on device")
        patched.setattr("almanac.core.files.sync", raising(full))
        patched.setattr("warehouse.landing.inbox.sync", raising(full))
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


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    home = Home(tmp_path_factory.mktemp("receiver") / "home", wait_s=0)
    home.claim("sandbox:1")
    with served(home, Clock(), body_within_s=HANGS_AFTER_S) as serving:
        yield serving


@pytest.fixture
def receiver(shared: Served) -> Served:
    """The receiver of the file, with its clock and its secret as at the start."""
    shared.reset()
    return shared
