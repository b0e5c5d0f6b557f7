"""The command line as a program: started, read, stopped."""

import hmac
import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import httpx
import pytest
from typer.testing import CliRunner, Result

from almanac import console
from almanac.command_line import app
from tests.hangs import HANGS_AFTER_S, wait_for
from tests.in_process import own_process
from tests.server.webhooks.receiver import Receiver

ROOT = Path(__file__).parent.parent
CALM = ("--json", "--pace", "0")
EARLY = ("--now", "2018-03-01T12:00:00Z")
YOUNG = (*CALM, *EARLY)
"""A small catalog, so that the sandbox starts sooner."""
ALMANAC = [sys.executable, "-m", "application"]
CommandHere = Callable[..., Result]


def environment(home: Path) -> dict[str, str]:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("ALMANAC_")}
    shared = {"ALMANAC_HOME": str(home), "ALMANAC_STATE": str(home.parent / "machine")}
    # Tests export more often than once a minute.
    shared["ALMANAC_EXPORT_INTERVAL_S"] = "0"
    return {**plain, **shared, "PYTHONPATH": str(ROOT), "COLUMNS": "120"}


def on_terminal(home: Path, *words: str, term: str = "dumb", code: int = 0) -> str:
    """Return what a command prints on a terminal of 80 columns; it ends with `code`."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*ALMANAC, *words],
        cwd=home,
        env={**environment(home), "TERM": term, "COLUMNS": "80"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    ) as process:
        os.close(theirs)
        output = b""
        try:
            while chunk := os.read(ours, 65_536):
                output += chunk
        except OSError:
            pass  # Linux raises this once the other end is closed.
        finally:
            os.close(ours)
        assert process.wait(HANGS_AFTER_S) == code, output.decode()
    return output.decode().replace("\r\n", "\n")


def almanac(home: Path, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*ALMANAC, *words],
        cwd=home,
        env=environment(home),
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER_S,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done


@pytest.fixture
def almanac_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CommandHere]:
    """Run a command in this process, in the environment that its own process would have."""
    monkeypatch.chdir(tmp_path)
    for name in [*os.environ]:
        if name.startswith("ALMANAC_"):
            monkeypatch.delenv(name)
    for name, value in environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    for stream in (console.people, console.warnings):
        # A console made while COLUMNS was set keeps that width, as in the workers of xdist.
        monkeypatch.setattr(stream, "_width", None)
    with own_process():
        yield lambda *words: CliRunner().invoke(app, list(words))


@contextmanager
def sandbox(home: Path, *words: str) -> Iterator[tuple[subprocess.Popen[str], IO[str]]]:
    process = subprocess.Popen(
        [*ALMANAC, "sandbox", "--port", "0", *words],
        cwd=home,
        env=environment(home),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield process, process.stdout
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_sandbox_prints_its_address_as_json_serves_and_stops_cleanly(
    tmp_path: Path, number: signal.Signals
) -> None:
    with sandbox(tmp_path, *YOUNG) as (process, output):
        message = json.loads(output.readline())
        assert message["base_url"].startswith("http://127.0.0.1:")
        assert list(message["keys"]) == ["free", "standard", "pro", "elite", "enterprise"]
        answer = httpx.get(
            message["base_url"] + "/v2/events",
            headers={"x-api-key": message["keys"]["pro"]},
            timeout=HANGS_AFTER_S,
        )
        assert answer.status_code == 200
        assert answer.headers["date"] == "Thu, 01 Mar 2018 12:00:00 GMT"
        process.send_signal(number)
        assert process.wait(HANGS_AFTER_S) == 130
        assert output.read() == ""
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_keys_made_and_revoked_beside_a_running_server_take_effect(tmp_path: Path) -> None:
    with sandbox(tmp_path, *YOUNG) as (_, output):
        base = json.loads(output.readline())["base_url"]
        made = json.loads(
            almanac(tmp_path, "accounts", "keys", "create", "me", "--plan", "pro", "--json").stdout
        )
        headers = {"Authorization": f"Bearer {made['key']}"}
        assert (
            httpx.get(base + "/v2/usage", headers=headers, timeout=HANGS_AFTER_S).json()["plan"]
            == "pro"
        )
        listed = json.loads(almanac(tmp_path, "accounts", "keys", "list", "--json").stdout)
        assert [(row["id"], row["account"], row["usable"]) for row in listed] == [
            (made["id"], "me", True)
        ]
        successor = json.loads(
            almanac(tmp_path, "accounts", "keys", "rotate", made["id"], "--json").stdout
        )
        almanac(tmp_path, "accounts", "keys", "revoke", successor["id"])
        refused = httpx.get(
            base + "/v2/usage", headers={"x-api-key": successor["key"]}, timeout=HANGS_AFTER_S
        )
        assert refused.status_code == 403
        assert (
            httpx.get(base + "/v2/usage", headers=headers, timeout=HANGS_AFTER_S).status_code == 200
        )
        table = almanac(tmp_path, "accounts", "keys", "list").stdout
        assert made["id"] in table
        assert made["key"] not in table


def test_the_export_interval_of_the_option_is_that_of_each_key(tmp_path: Path) -> None:
    with sandbox(tmp_path, *YOUNG, "--export-interval", "90") as (_, output):
        started = json.loads(output.readline())
        export = started["base_url"] + "/v2/events/export?from=2018-03-01&to=2018-03-02"
        headers = {"x-api-key": started["keys"]["elite"]}
        first, second = (
            httpx.get(export, headers=headers, timeout=HANGS_AFTER_S) for _ in range(2)
        )
        assert (first.status_code, second.status_code) == (200, 429)
        assert 80 <= int(second.headers["retry-after"]) <= 90


def test_a_webhook_arrives_when_the_clock_is_moved(tmp_path: Path) -> None:
    from http.server import BaseHTTPRequestHandler, HTTPServer
    from threading import Thread

    from catalog.contract.constants import WEBHOOK_KINDS

    received: list[tuple[str, bytes]] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers["content-length"])
            body = self.rfile.read(length)
            if len(body) < length:  # the sandbox was stopped in the middle of a post
                return
            received.append((self.headers["SVC-Signature"], body))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            """Quiet."""

    receiver = HTTPServer(("127.0.0.1", 0), Receiver)
    Thread(target=receiver.serve_forever, daemon=True).start()
    try:
        with sandbox(tmp_path, "--json", *EARLY) as (_, output):
            base = json.loads(output.readline())["base_url"]
            url = f"http://127.0.0.1:{receiver.server_port}/hook"
            almanac(tmp_path, "accounts", "keys", "create", "me", "--plan", "elite")
            words = (
                "accounts",
                "endpoints",
                "add",
                url,
                "--account",
                "me",
                "--allow-private",
                "--json",
            )
            added = json.loads(almanac(tmp_path, *words).stdout)
            httpx.put(
                base + "/sandbox/clock", json={"advance_s": 6 * 3600}, timeout=HANGS_AFTER_S
            ).raise_for_status()
            wait_for(lambda: len(received) >= 3)
    finally:
        receiver.shutdown()
    secret = added["secret"].encode()
    for header, body in received:
        assert header == hmac.digest(secret, body, "sha256").hex()
        assert json.loads(body)["type"] in WEBHOOK_KINDS


def test_a_sandbox_with_a_webhook_sends_to_it_with_the_secret_of_a_file(tmp_path: Path) -> None:
    receiver = Receiver()
    words = (*YOUNG, "--webhook", receiver.url, "--webhook-secret-file", "hook.secret")
    try:
        with sandbox(tmp_path, *words) as (_, output):
            shown = output.readline()
            base = json.loads(shown)["base_url"]
            httpx.put(
                base + "/sandbox/clock", json={"advance_s": 86_400}, timeout=HANGS_AFTER_S
            ).raise_for_status()
            wait_for(lambda: receiver.received)
    finally:
        receiver.close()
    file = tmp_path / "hook.secret"
    secret = file.read_text().strip()
    assert file.stat().st_mode & 0o777 == 0o600
    assert secret not in shown
    assert all(delivery.is_signed_with(secret) for delivery in receiver.received)
    # A later start uses the secret of the file; without a file it shows the same one.
    with sandbox(tmp_path, *words) as (_, output):
        assert json.loads(output.readline())["webhook"] == {"url": receiver.url}
    with sandbox(tmp_path, *words[:-2]) as (_, output):
        assert json.loads(output.readline())["webhook"]["secret"] == secret


def test_a_second_server_on_the_same_folder_and_a_taken_port_are_clear_errors(
    tmp_path: Path,
) -> None:
    with sandbox(tmp_path, *YOUNG) as (_, output):
        base = json.loads(output.readline())["base_url"]
        second = almanac(tmp_path, "sandbox", "--port", "0", code=1)
        assert "another server uses" in second.stderr
        taken = almanac(
            tmp_path, "sandbox", "--port", base.rpartition(":")[2], "--dir", "other", code=1
        )
        assert "can't listen on 127.0.0.1" in taken.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("sandbox", "--now", "soon"), "expected a form such as 2026-03-01"),
        (("sandbox", "--webhook-secret-file", "x"), "--webhook URL, which is missing"),
        (("sandbox", "--faults", "gremlins"), "'gremlins' is not a fault"),
        (("sandbox", "--now", "1999-01-01"), "outside 2017 to 2040"),
        (("sandbox", "--pace", "1000"), "--pace"),
        (("accounts", "keys", "create", "me", "--plan", "gold"), "there is no plan 'gold'"),
        (("accounts", "keys", "create", "me", "--plan", "free", "--rate", "5"), "only Enterprise"),
        (("accounts", "keys", "revoke", "key_nope"), "no such key: key_nope in "),
        (("accounts", "endpoints", "add", "http://127.0.0.1/x", "--account", "me"), "127.0.0.1"),
        (
            ("accounts", "endpoints", "add", "http:8.8.8.8", "--account", "me"),
            "expected a URL such as",
        ),
        (
            (
                "accounts",
                "endpoints",
                "add",
                "http://[fd00:ec2::254]/",
                "--account",
                "me",
                "--allow-private",
            ),
            "no endpoint may use it",
        ),
    ],
)
def test_a_wrong_argument_is_one_line_and_no_traceback(
    almanac_here: CommandHere, words: tuple[str, ...], message: str
) -> None:
    done = almanac_here(*words)
    assert done.exit_code in (1, 2)
    assert isinstance(done.exception, SystemExit), "else Python would print a traceback"
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_wrong_argument_of_the_program_is_one_line_and_no_traceback(tmp_path: Path) -> None:
    done = almanac(tmp_path, "sandbox", "--now", "soon", code=2)
    assert "expected a form such as 2026-03-01" in done.stderr
    assert done.stderr.count("\n") == 1


def test_no_key_or_secret_is_left_in_the_folder_or_the_server_output(tmp_path: Path) -> None:
    made = json.loads(
        almanac(tmp_path, "accounts", "keys", "create", "me", "--plan", "pro", "--json").stdout
    )
    canary = made["key"]
    with sandbox(tmp_path, *YOUNG, "--faults", "error*1") as (process, output):
        base = json.loads(output.readline())["base_url"]
        for path in ("/v2/events?limit=1", "/v2/events?limit=0", "/v2/nope", "/v2/usage"):
            for headers in ({"x-api-key": canary}, {"Authorization": f"Bearer {canary}"}):
                answer = httpx.get(base + path, headers=headers, timeout=HANGS_AFTER_S)
                assert canary not in answer.text + str(answer.headers)
        for path in ("/metrics", "/sandbox/requests", "/sandbox/faults"):
            assert canary not in httpx.get(base + path, timeout=HANGS_AFTER_S).text
        process.send_signal(signal.SIGINT)
        process.wait(HANGS_AFTER_S)
        assert process.stderr is not None
        assert canary not in output.read() + process.stderr.read()
    for path in tmp_path.rglob("*"):
        assert path.is_dir() or canary.encode() not in path.read_bytes(), path
