"""The log of requests, one line of JSON an attempt."""

import json
from datetime import UTC, datetime
from pathlib import Path

from pydantic import SecretStr

from resources.http.transport import SentRequest
from resources.request_log import RequestLog, fingerprint_of

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)


def test_attempts_are_numbered_until_one_succeeds_and_the_key_is_not_there(tmp_path: Path) -> None:
    log = RequestLog(tmp_path, lambda: NOW, key=SecretStr("canary-77"))
    for path, status in (("/a", 503), ("/a", None), ("/a", 200), ("/a", 200), ("/b", 429)):
        log(SentRequest("GET", path, status, 0.25, 10))
    text = (tmp_path / "requests" / "2026-03-02.jsonl").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    assert [(line["path"], line["attempt"]) for line in lines] == [
        *(("/a", 1), ("/a", 2), ("/a", 3), ("/a", 1)),
        ("/b", 1),
    ]
    assert lines[0] == {
        "at": "2026-03-02T12:00:00+00:00",
        "path": "/a",
        "status": 503,
        "seconds": 0.25,
        "bytes": 10,
        "attempt": 1,
        "key_fingerprint": fingerprint_of("canary-77"),
    }
    assert log.count == 5
    assert "canary" not in text
