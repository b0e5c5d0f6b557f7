"""The log of requests, one line of JSON an attempt."""

import json
from datetime import UTC, datetime
from pathlib import Path

from pydantic import SecretStr

from resources.limits.ledger import QuotaHeaders
from resources.request_log import RequestLog, SentRequest, fingerprint_key, last_usage

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)


def test_each_attempt_is_a_line_and_the_key_is_not_there(tmp_path: Path) -> None:
    log = RequestLog(tmp_path, lambda: NOW, key=SecretStr("canary-77"))
    for attempt, status in enumerate((503, None, 200), start=1):
        log(SentRequest("/a", status, 0.25, 10, attempt))
    text = (tmp_path / "requests" / "2026-03-02.jsonl").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    assert [(line["status"], line["attempt"]) for line in lines] == [(503, 1), (None, 2), (200, 3)]
    assert lines[0] == {
        "at": "2026-03-02T12:00:00Z",
        "path": "/a",
        "status": 503,
        "seconds": 0.25,
        "bytes": 10,
        "attempt": 1,
        "key_fingerprint": fingerprint_key("canary-77"),
    }
    assert log.count == 3
    assert "canary" not in text


def test_the_log_has_what_headers_say_and_old_lines_without_it_stay_readable(
    tmp_path: Path,
) -> None:
    log = RequestLog(tmp_path, lambda: NOW, key=SecretStr("canary-77"))
    reset_at = datetime(2026, 3, 17, tzinfo=UTC)
    heard = QuotaHeaders(3_000, 2_999, reset_at, 1.0)
    log(SentRequest("/a", 404, 0.25, 10, 1, heard, "req_7f3a"))
    (line,) = (tmp_path / "requests" / "2026-03-02.jsonl").read_text().splitlines()
    known = json.loads(line)
    assert (known["quota"], known["remaining"], known["request_id"]) == (3_000, 2_999, "req_7f3a")
    assert datetime.fromisoformat(known["reset_at"]) == reset_at
    (tmp_path / "usage.jsonl").write_text('{"at": "2026-03-02T06:00:00Z", "plan": "pro"}\n')
    old = last_usage(tmp_path)
    assert old is not None
    assert (old.plan, old.rate, old.period_start) == ("pro", None, None)
