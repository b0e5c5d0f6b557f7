import logging
from pathlib import Path

import pytest

from application.web.mirror.mirror import CONTROL_PATH
from catalog.contract.plans import ELITE
from catalog.server.service_dir import ServiceDir
from catalog.server.webhooks.sender import SenderOptions
from tests.application.mirror.filled_home import STARTS, mirroring
from tests.application.mirror.replays import order, replaying
from tests.hangs import wait_for
from tests.server.webhooks.receiver import Receiver
from warehouse.home import Home

PATHS = (
    *("/v2/events", "/v2/coins", "/v2/categories", "/v2/events/changes", "/v2/events/export"),
    *("/v2/events?limit=0", "/v2/nothing", "/v2/events?as_of=2020-01-01", "/v2/usage"),
    *("/healthz", "/metrics", CONTROL_PATH),
)


def test_no_key_is_kept_whether_known_unknown_or_refused(
    filled_home: Home, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    receiver = Receiver()
    receiver.answer = lambda _: 500
    known, _ = ServiceDir(tmp_path).key_book().create("bot", ELITE)
    keys = (known, known[:-1] + ("a" if known[-1] != "a" else "b"), "canary-0123456789abcdef")
    book = ServiceDir(tmp_path).endpoint_book()
    secret = book.add(receiver.url, account="bot", allow_private=True).secret
    push = SenderOptions(retry_after_s=(0.05,) * 200, poll_s=0.02)
    shown = []
    with replaying(filled_home, tmp_path, STARTS, push=push) as (server, client):
        order(client, advance_s=12 * 3600)
        wait_for(lambda: receiver.received)
        for key in keys:
            for headers in ({"x-api-key": key}, {"authorization": f"Bearer {key}"}):
                answers = [client.get(path, headers=headers) for path in PATHS]
                answers.append(client.post("/v2/events", headers=headers, content=b"{"))
                assert answers[-1].status_code == 405
                shown += [answer.text + str(answer.headers) for answer in answers]
        shown.append(repr(server))
        # The write-ahead logs are read as well: they are deleted when the mirror stops.
        kept = [file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()]
    receiver.close()
    kept += [file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()]
    kept += [str(each.headers).encode() + each.body for each in receiver.received]
    assert len(kept) > 4
    for key in keys:
        assert not any(key.encode() in content for content in kept)
    for hidden in (*keys, secret):
        assert not any(hidden in text for text in (*shown, caplog.text))


ATTACKS = (
    "'); ATTACH '{file}' AS other; SELECT ('",
    "' OR 1=1 --",
    "x' UNION SELECT content FROM read_text('{file}') --",
    "a\r\nX-Injected: 1\x00",
)
FILTERS = ("keyword", "coins", "categories")
PARAMETERS = (*FILTERS, "from", "to", "impactMin", "sortBy", "limit", "cursor", "as_of")


def test_no_id_and_no_parameter_is_read_as_sql(filled_home: Home, tmp_path: Path) -> None:
    secret = tmp_path / "other-file"
    secret.write_text("the content of another file")
    with mirroring(filled_home, tmp_path / "m") as (_, client):
        before = client.get("/v2/events").json()
        for name in ("%00", "%C2%84", "a%0A", "%7F", "'%20OR%201=1%20--"):
            for path in ("/v2/events/", "/v2/coins/"):
                answer = client.get(path + name)
                assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")
        for attack in ATTACKS:
            text = attack.format(file=secret)
            for name in PARAMETERS:
                answer = client.get("/v2/events", params={name: text})
                assert answer.status_code in (200, 400), (name, text)
                assert "x-injected" not in answer.headers
                assert secret.read_text() not in answer.text
                if answer.status_code == 200 and name in FILTERS:
                    assert answer.json()["data"] == [], (name, text)
        assert client.get("/v2/events").json() == before
