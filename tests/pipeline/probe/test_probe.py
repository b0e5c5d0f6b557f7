"""`almanac probe` against a sandbox, against a service that differs, and against broken ones."""

import json
import re
import shlex
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pytest
from pydantic import SecretStr

from catalog.sandbox.sandbox import Sandbox
from pipeline.probe.inquiry import Reply, ask
from pipeline.probe.probe_evidence import write_settings
from pipeline.probe.questions import MOST_REQUESTS, list_questions
from pipeline.session import open_unclaimed_service
from pipeline.settings import Settings
from resources.http.retry import Timeouts
from tests.pipeline.conftest import Almanac
from tests.pipeline.probe.different_service import (
    DIFFERENCES,
    EXPORT_PATH,
    MORE,
    DifferentService,
    different_service,
)
from tests.resources.fakes import head, raw_server
from tests.test_cli import ROOT

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
CONTENT = (
    "event_id, slug, title, description, displayed_date, date, date_end, date_type, is_estimated, "
    "categories, coins, impact, impact_summary, source_url, snapshot_url"
)
FAST = {"rate_per_s": "50", "burst": "100"}


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(seed=1, now=NOW, export_interval_s=0) as running:
        yield running


@contextmanager
def probed_service(sandbox: Sandbox, *differences: str) -> Iterator[tuple[DifferentService, Any]]:
    """Yield a service and the settings for it. Each one has a key of its own."""
    with different_service(sandbox, differences) as service:
        key = sandbox.new_key("elite")
        yield service, {"base_url": service.base_url, "api_key": key, **FAST}


def report_of(done: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def verdicts(report: dict[str, Any]) -> dict[str, str]:
    return {point["point"]: point["verdict"] for point in report["points"]}


def differing(report: dict[str, Any]) -> dict[str, str]:
    return {
        point["point"]: point["found"]
        for point in report["points"]
        if point["verdict"] == "differs"
    }


def test_a_sandbox_is_as_expected(almanac: Almanac, sandbox: Sandbox, tmp_path: Path) -> None:
    with probed_service(sandbox) as (service, settings):
        report = report_of(almanac("probe", "--yes", "--json", **settings))
    # The clock of this sandbox is set.
    assert set(differing(report)) == {"clock"}
    assert report["verdicts"]["not asked"] == 0
    assert [name for name, verdict in verdicts(report).items() if verdict == "unclear"] == [
        "Retry-After"
    ]
    assert report["requests"] == len(service.requests) == 26 <= MOST_REQUESTS
    logged = list((tmp_path / "data" / "state" / "requests").glob("*.jsonl"))
    assert sum(len(file.read_bytes().splitlines()) for file in logged) == 26


def test_each_difference_is_found(almanac: Almanac, sandbox: Sandbox) -> None:
    with probed_service(sandbox, *DIFFERENCES) as (service, settings):
        report = report_of(almanac("probe", "--yes", "--json", **settings))
    found = differing(report)
    assert found.keys() >= {
        "usage: names",
        "rate headers: reset",
        "categories: form",
        "categories: ids",
        "events: fields",
        "events: limit of 100",
        "single event",
        "error body",
        "wrong parameter",
        "wrong key",
        "export: path",
        "export: order",
        "export: lists",
    }
    assert found["usage: names"] == "tier, requests, periodEnd"
    assert found["rate headers: reset"] == "seconds since 1970"
    assert found["categories: form"] == "a bare array"
    assert found["categories: ids"] == "numbers, such as 1, 2, 3"
    assert found["events: fields"] == "additional: communityVotes"
    assert found["events: limit of 100"] == "limit 20 was applied"
    assert found["single event"] == "wrapped in `data`"
    assert found["error body"] == "HTML"
    assert found["wrong parameter"] == "422"
    assert found["wrong key"] == "401"
    assert found["export: path"] == EXPORT_PATH
    assert found["export: lists"] == "joined with |"
    assert report["settings"]["ALMANAC_EXPORT_PATH"] == EXPORT_PATH
    assert [point["point"] for point in report["points"] if point["action"] == "unsupported"] == []
    assert report["requests"] == len(service.requests) <= MOST_REQUESTS


@pytest.mark.parametrize(
    ("difference", "point", "shown"),
    [
        ("no limit headers", "rate headers", "none"),
        ("retired version is gone", "V1 paths", "410"),
    ],
)
def test_a_difference_that_excludes_others_is_found(
    almanac: Almanac, sandbox: Sandbox, difference: str, point: str, shown: str
) -> None:
    with probed_service(sandbox, difference) as (_, settings):
        report = report_of(almanac("probe", "--yes", "--json", **settings))
    assert differing(report).keys() - {"clock"} == {point}
    assert differing(report)[point] == shown


@pytest.mark.long
def test_a_run_with_the_written_settings_has_the_same_events(
    almanac: Almanac, sandbox: Sandbox, tmp_path: Path
) -> None:
    env, coins = tmp_path / ".env", "bitcoin,ethereum"
    homes = {name: tmp_path / name for name in ("differs", "sandbox")}
    with probed_service(sandbox, *DIFFERENCES) as (_, settings):
        env.write_text("# mine\nALMANAC_COINS=bitcoin,ethereum\n")
        env.chmod(0o600)
        almanac("probe", "--yes", "--write", str(env), home=str(homes["differs"]), **settings)
        assert f"ALMANAC_EXPORT_PATH={EXPORT_PATH}" in env.read_text().splitlines()
        almanac("run", home=str(homes["differs"]), **settings)
    env.unlink()
    address = {"base_url": sandbox.base_url, "api_key": sandbox.new_key("elite")}
    almanac("run", home=str(homes["sandbox"]), coins=coins, **address, **FAST)
    with duckdb.connect() as connection:
        for name, home in homes.items():
            connection.execute(f"ATTACH '{home / 'warehouse.duckdb'}' AS {name} (READ_ONLY)")
        events = {name: f"SELECT {CONTENT} FROM {name}.main.events" for name in homes}
        for left, right in (("differs", "sandbox"), ("sandbox", "differs")):
            rows = connection.execute(f"{events[left]} EXCEPT ALL {events[right]}").fetchall()
            assert rows == []
        assert connection.execute(events["differs"]).fetchall()


def test_a_429_ends_the_probe(almanac: Almanac, sandbox: Sandbox) -> None:
    with probed_service(sandbox, "retry after as a date") as (service, settings):
        service.limited_from = 5
        report = report_of(almanac("probe", "--yes", "--json", code=1, **settings))
    assert report["requests"] == len(service.requests) == 5
    assert "request 5" in report["stopped"]
    assert "429" in report["stopped"]
    assert verdicts(report)["categories: ids"] == "same"
    assert verdicts(report)["export: path"] == "not asked"
    assert differing(report)["Retry-After"] == "an HTTP date"


def test_a_refused_key_ends_the_probe(almanac: Almanac, sandbox: Sandbox) -> None:
    with probed_service(sandbox) as (service, settings):
        settings["api_key"] = "canary-5f1c9e7b2a44-unknown"
        done = almanac("probe", "--yes", code=1, **settings)
    assert len(service.requests) == 1
    assert "refuses the key" in done.output
    assert "No point could be judged; 1 request was sent" in done.output
    assert "canary" not in done.output


def test_a_service_that_goes_down_ends_the_probe(almanac: Almanac, sandbox: Sandbox) -> None:
    with probed_service(sandbox) as (service, settings):
        service.down_from = 9
        report = report_of(almanac("probe", "--yes", "--json", code=1, **settings))
    assert report["requests"] == len(service.requests) == 10
    assert "answered 502" in report["stopped"]
    assert verdicts(report)["single event"] == "same"
    assert verdicts(report)["V1 paths"] == "not asked"


def test_a_host_that_is_not_found_is_reported(almanac: Almanac) -> None:
    settings = {"base_url": "http://no-such-host.invalid", "api_key": "canary-5f1c9e7b2a44"}
    report = report_of(almanac("probe", "--yes", "--json", code=1, **settings, proxy="none"))
    assert report["requests"] == 1
    assert "request 1 (GET /v2/usage) failed" in report["stopped"]
    assert set(verdicts(report).values()) == {"unclear", "not asked"}


def test_a_port_that_refuses_is_reported(almanac: Almanac) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    settings = {"base_url": f"http://127.0.0.1:{port}", "api_key": "canary-5f1c9e7b2a44"}
    done = almanac("probe", "--yes", code=1, **settings)
    assert "failed" in done.output
    assert "canary" not in done.output


def test_a_redirect_is_not_followed(almanac: Almanac, tmp_path: Path) -> None:
    moved = head("Location: http://elsewhere.invalid/v2/usage", status="302 Found")
    with raw_server([moved]) as server:
        settings = {"base_url": server.base_url, "api_key": "canary-5f1c9e7b2a44"}
        done = almanac("probe", "--yes", code=1, **settings)
    assert "redirected to http://elsewhere.invalid" in " ".join(done.output.split())
    assert "The key was not sent there" in " ".join(done.output.split())
    assert files_with(tmp_path, b"canary") == []


def test_settings_are_written_beside_other_lines_as_they_are(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    file.write_bytes(b"A=1\r\nalmanac_export_path=/v2/old\r\nB='x'")
    write_settings(file, {"ALMANAC_EXPORT_PATH": "/v2/new"})
    assert file.read_bytes() == b"A=1\r\nB='x'\nALMANAC_EXPORT_PATH=/v2/new\r\n"
    file.write_text('KEY="first line\nALMANAC_EXPORT_PATH=/inside"\n')
    with pytest.raises(ValueError, match="a value of several lines"):
        write_settings(file, {"ALMANAC_EXPORT_PATH": "/v2/new"})
    assert "/inside" in file.read_text()


def test_a_folder_that_is_missing_ends_the_probe_before_a_request(
    almanac: Almanac, tmp_path: Path
) -> None:
    done = almanac("probe", "--yes", "--write", str(tmp_path / "none" / "x.env"), code=2)
    assert "there is no such folder. Nothing was sent" in " ".join(done.output.split())


def test_a_service_that_does_not_answer_ends_the_probe(
    almanac_settings: Settings, tmp_path: Path
) -> None:
    questions = list_questions("/v2/events/export")
    with (
        silent_server() as address,
        open_unclaimed_service(
            almanac_settings.model_copy(update={"base_url": address}), timeouts=Timeouts(read=0.2)
        ) as service,
    ):
        kept: list[Reply] = []
        inquiry = ask(
            service,
            questions,
            most=30,
            on_request=lambda question: None,
            on_reply=kept.append,
        )
    assert inquiry.requests == 1
    assert kept == inquiry.sent
    assert "failed: GET /v2/usage got no complete response" in inquiry.stopped
    assert "canary" not in repr(inquiry)


@pytest.fixture
def almanac_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.chdir(tmp_path)
    key = SecretStr("canary-5f1c9e7b2a44")
    return Settings(home=tmp_path / "home", state=tmp_path / "state", api_key=key)


@contextmanager
def silent_server() -> Iterator[str]:
    """Accept connections, and answer nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def test_each_command_of_the_page_runs(almanac: Almanac, sandbox: Sandbox, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "probe.md").read_text("utf-8")
    commands = re.findall(r"^almanac (.*)$", page, re.MULTILINE)
    assert len(commands) == 2
    with probed_service(sandbox, "another export path") as (_, settings):
        for command in commands:
            almanac(*shlex.split(command), **settings)
    assert f"ALMANAC_EXPORT_PATH={EXPORT_PATH}" in (tmp_path / ".env").read_text().splitlines()


def test_a_plan_that_is_not_stated_is_known_by_its_quota(almanac: Almanac) -> None:
    body = json.dumps({"monthlyQuota": 3_000_000, "requestsUsed": 4}).encode()
    answer = head("Content-Type: application/json", f"Content-Length: {len(body)}") + body
    with raw_server(*([answer] for _ in range(30))) as server:
        settings = {"base_url": server.base_url, "api_key": "canary-5f1c9e7b2a44", **FAST}
        report = report_of(almanac("probe", "--yes", "--json", **settings))
    assert report["settings"]["ALMANAC_PLAN"] == "elite"
    assert report["quota_left"] is not None


def test_an_export_path_is_found_in_the_openapi_document(
    almanac: Almanac, sandbox: Sandbox
) -> None:
    with probed_service(sandbox, "another export path") as (service, settings):
        service.export_path, service.names_export = "/v2/bulk/catalog-export", True
        report = report_of(almanac("probe", "--yes", "--json", **settings))
    assert report["settings"]["ALMANAC_EXPORT_PATH"] == "/v2/bulk/catalog-export"
    assert report["requests"] == len(service.requests) == 27


def test_a_page_size_that_is_refused_becomes_a_setting(almanac: Almanac, sandbox: Sandbox) -> None:
    with probed_service(sandbox) as (service, settings):
        service.refused_above = 40
        report = report_of(almanac("probe", "--yes", "--json", **settings))
    assert report["settings"]["ALMANAC_PAGE_SIZE"] == "40"


def test_truncated_bodies_are_unclear(almanac: Almanac, tmp_path: Path) -> None:
    short = head("Content-Type: application/json", "Content-Length: 500") + b'{"plan": "eli'
    with raw_server(*([short] for _ in range(30))) as server:
        settings = {"base_url": server.base_url, "api_key": "canary-5f1c9e7b2a44", **FAST}
        report = report_of(almanac("probe", "--yes", "--json", code=1, **settings))
    assert report["requests"] == 2
    assert verdicts(report)["usage: names"] == "unclear"
    assert files_with(tmp_path, b"canary") == []


def test_the_key_is_nowhere_if_the_service_repeats_it(almanac: Almanac, tmp_path: Path) -> None:
    key = "canary-5f1c9e7b2a44"
    body = json.dumps({"plan": key, "used": 1, "note": f"x-api-key: {key}"}).encode()
    echo = head("Content-Type: application/json", f"X-Key: {key}", f"Content-Length: {len(body)}")
    with raw_server(*([echo + body] for _ in range(30))) as server:
        settings = {"base_url": server.base_url, "api_key": key, **FAST}
        done = almanac("probe", "--yes", "--json", **settings)
        shown = almanac("probe", "--yes", "--max-requests", "2", **settings)
    assert "canary" not in done.output + shown.output
    assert list((tmp_path / "data" / "state" / "probe").rglob("01-usage.http"))
    assert files_with(tmp_path, b"canary") == []


def files_with(folder: Path, text: bytes) -> list[Path]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [path for path in files if text in path.read_bytes()]


def test_a_dry_run_sends_nothing(almanac: Almanac, sandbox: Sandbox, tmp_path: Path) -> None:
    with probed_service(sandbox) as (service, settings):
        done = almanac("probe", "--dry-run", **settings)
        plan = report_of(almanac("probe", "--dry-run", "--json", **settings))
    assert service.requests == []
    assert "Nothing was sent." in done.output
    assert (plan["requests"], plan["at_most"]) == (26, 30)
    assert not (tmp_path / "data").exists()


def test_no_request_is_sent_without_a_confirmation(almanac: Almanac, sandbox: Sandbox) -> None:
    with probed_service(sandbox) as (service, settings):
        done = almanac("probe", code=2, **settings)
    assert service.requests == []
    assert "--yes" in done.output


def test_max_requests_limits_the_requests(almanac: Almanac, sandbox: Sandbox) -> None:
    with probed_service(sandbox, "another export path") as (service, settings):
        words = ("probe", "--yes", "--json", "--max-requests", "7")
        report = report_of(almanac(*words, **settings))
    assert report["requests"] == len(service.requests) == 7
    assert report["verdicts"]["not asked"] > 0
    assert report["stopped"] == ""


def test_settings_replace_their_own_lines_only(tmp_path: Path) -> None:
    file = tmp_path / "settings.env"
    file.write_text("# mine\nALMANAC_COINS=bitcoin\nexport ALMANAC_EXPORT_PATH=/old\n")
    write_settings(file, {"ALMANAC_EXPORT_PATH": "/v2/new"})
    assert file.read_text() == "# mine\nALMANAC_COINS=bitcoin\nALMANAC_EXPORT_PATH=/v2/new\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["settings.env"]


def test_a_value_that_cannot_be_in_a_line_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "settings.env"
    with pytest.raises(ValueError, match="ALMANAC_EXPORT_PATH"):
        write_settings(file, {"ALMANAC_EXPORT_PATH": "/v2\nALMANAC_BASE_URL=http://elsewhere"})
    assert not file.exists()


def test_every_difference_of_the_service_is_tried() -> None:
    assert {"no limit headers", "retry after as a date", "retired version is gone"} == MORE


@pytest.mark.parametrize("seed", range(3))
def test_values_of_any_type_do_not_end_the_probe(almanac: Almanac, seed: int) -> None:
    chance = Random(seed)
    odd = [None, True, -1, 1e308, "", "x" * 5_000, "\x00\u202e", [], {}, [[1]], {"data": 1}, [{}]]

    def body() -> bytes:
        row = {
            name: chance.choice(odd)
            for name in ("id", "date", "dateType", "coins", "categories", "impact", "cancelledAt")
        }
        names = ("plan", "tier", "used", "limit", "period", "resetAt", "meta", "openapi", "paths")
        value = {name: chance.choice(odd) for name in names}
        return json.dumps(chance.choice([value, value | {"data": [row, 1, row]}, [row]])).encode()

    answers = [
        head(
            "Content-Type: application/json", f"Content-Length: {len(text)}", "X-RateLimit-Limit: x"
        )
        + text
        for text in (body() for _ in range(30))
    ]
    with raw_server(*([answer] for answer in answers)) as server:
        settings = {"base_url": server.base_url, "api_key": "canary-5f1c9e7b2a44", **FAST}
        report = report_of(almanac("probe", "--yes", "--json", **settings))
    assert report["stopped"] == ""
    assert len(report["points"]) == 55


def test_values_in_requests_are_known() -> None:
    for question in list_questions("/v2/events/export"):
        named = set(re.findall(r"{(\w+)}", question.target + "".join(question.headers.values())))
        assert named == set(question.needs)
