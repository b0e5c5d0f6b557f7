"""The command line as a program: started, read, stopped."""

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

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


def environment(home: Path, code: Path = ROOT) -> dict[str, str]:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("ALMANAC_")}
    shared = {"ALMANAC_HOME": str(home), "ALMANAC_STATE": str(home.parent / "machine")}
    # Tests export more often than once a minute.
    shared["ALMANAC_EXPORT_INTERVAL_S"] = "0"
    return {**plain, **shared, "PYTHONPATH": str(code), "COLUMNS": "120"}


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


def almanac_here(folder: Path, *words: str, **settings: str) -> Result:
    """Run a command in this process, in the environment that its own process would have."""
    with pytest.MonkeyPatch.context() as patched, own_process():
        patched.chdir(folder)
        for name in [*os.environ]:
            if name.startswith("ALMANAC_"):
                patched.delenv(name)
        given = {f"ALMANAC_{name.upper()}": value for name, value in settings.items()}
        for name, value in {**environment(folder), **given}.items():
            patched.setenv(name, value)
        for stream in (console.people, console.warnings):
            # A console made while COLUMNS was set keeps that width, as in the workers of xdist.
            patched.setattr(stream, "_width", None)
        return CliRunner().invoke(app, list(words))


def answer_of(folder: Path, *words: str) -> Any:
    """Run `almanac sandbox … --json` in this process; return what it prints."""
    done = almanac_here(folder, "sandbox", *words, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


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


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("served")


@pytest.fixture(scope="module")
def started(folder: Path) -> Iterator[dict[str, Any]]:
    """What a sandbox printed that serves the folder."""
    with sandbox(folder, *YOUNG, "--export-interval", "90") as (_, output):
        yield json.loads(output.readline())


def get(url: str, key: str) -> httpx.Response:
    return httpx.get(url, headers={"x-api-key": key}, timeout=HANGS_AFTER_S)


def test_no_key_is_left_in_the_folder_or_in_an_answer(
    folder: Path, started: dict[str, Any]
) -> None:
    base, canary = (
        started["base_url"],
        answer_of(folder, "keys", "create", "c", "--plan", "pro")["key"],
    )
    for path in ("/v2/events?limit=1", "/v2/events?limit=0", "/v2/nope", "/v2/usage"):
        for headers in (
            {"x-api-key": canary},
            {"x-api-key": canary, "sandbox-faults": "error"},
            {"Authorization": f"Bearer {canary}"},
        ):
            answer = httpx.get(base + path, headers=headers, timeout=HANGS_AFTER_S)
            assert canary not in answer.text + str(answer.headers)
            assert (answer.status_code == 500) == ("sandbox-faults" in headers)
    for path in ("/metrics", "/sandbox/requests", "/sandbox/faults"):
        assert canary not in httpx.get(base + path, timeout=HANGS_AFTER_S).text
    for path in folder.rglob("*"):
        assert path.is_dir() or canary.encode() not in path.read_bytes(), path


def test_keys_made_and_revoked_beside_a_running_server_take_effect(
    folder: Path, started: dict[str, Any]
) -> None:
    usage = started["base_url"] + "/v2/usage"
    made = answer_of(folder, "keys", "create", "me", "--plan", "pro")
    assert get(usage, made["key"]).json()["plan"] == "pro"
    assert (made["id"], "me", None) in [
        (row["id"], row["account"], row["revoked_at"]) for row in answer_of(folder, "keys", "list")
    ]
    almanac_here(folder, "sandbox", "keys", "revoke", made["id"])
    assert get(usage, made["key"]).status_code == 403
    table = almanac_here(folder, "sandbox", "keys", "list").stdout
    assert made["id"] in table
    assert made["key"] not in table


def test_the_export_interval_of_the_option_is_that_of_each_key(started: dict[str, Any]) -> None:
    export = started["base_url"] + "/v2/events/export?from=2018-03-01&to=2018-03-02"
    first, second = (get(export, started["keys"]["elite"]) for _ in range(2))
    assert (first.status_code, second.status_code) == (200, 429)
    assert 80 <= int(second.headers["retry-after"]) <= 90


def test_a_second_server_on_the_same_folder_and_a_taken_port_are_clear_errors(
    folder: Path, started: dict[str, Any]
) -> None:
    second = almanac_here(folder, "sandbox", "--port", "0")
    assert (second.exit_code, "another server uses" in second.stderr) == (1, True)
    port = started["base_url"].rpartition(":")[2]
    taken = almanac_here(folder, "sandbox", "--port", port, "--dir", "other")
    assert (taken.exit_code, "can't listen on 127.0.0.1" in taken.stderr) == (1, True)


def test_the_sandbox_serves_sends_webhooks_and_stops_cleanly(tmp_path: Path) -> None:
    receiver = Receiver()
    try:
        with sandbox(tmp_path, *YOUNG) as (process, output):
            message = json.loads(output.readline())
            assert list(message["keys"]) == ["free", "standard", "pro", "elite", "enterprise"]
            answer = get(message["base_url"] + "/v2/events", message["keys"]["pro"])
            assert answer.status_code == 200
            assert answer.headers["date"] == "Thu, 01 Mar 2018 12:00:00 GMT"
            answer_of(tmp_path, "keys", "create", "me", "--plan", "elite")
            words = ("endpoints", "add", receiver.url, "--account", "me", "--allow-private")
            secret = answer_of(tmp_path, *words)["secret"]
            httpx.put(
                message["base_url"] + "/sandbox/clock",
                json={"advance_s": 86_400},
                timeout=HANGS_AFTER_S,
            ).raise_for_status()
            wait_for(lambda: receiver.received)
            assert all(sent.is_signed_with(secret) for sent in receiver.received)
            process.send_signal(signal.SIGTERM)
            assert process.wait(HANGS_AFTER_S) == 130
            assert output.read() == ""
            assert process.stderr is not None and process.stderr.read() == ""
    finally:
        receiver.close()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("sandbox", "--now", "soon"), "expected ISO 8601, such as"),
        (("sandbox", "--faults", "gremlins"), "'gremlins' is not a fault"),
        (("sandbox", "--now", "1999-01-01"), "outside 2017 to 2040"),
        (("sandbox", "--pace", "1000"), "--pace"),
        (("sandbox", "keys", "create", "me", "--plan", "gold"), "'gold' is not one of"),
        (("sandbox", "keys", "create", "me", "--plan", "free", "--rate", "5"), "only Enterprise"),
        (("sandbox", "keys", "revoke", "key_nope"), "no key in use: key_nope in "),
        (("sandbox", "endpoints", "add", "http://127.0.0.1/x", "--account", "me"), "127.0.0.1"),
    ],
)
def test_a_wrong_argument_is_one_line_and_no_traceback(
    tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    done = almanac_here(tmp_path, *words)
    assert done.exit_code in (1, 2)
    assert isinstance(done.exception, SystemExit), "else Python would print a traceback"
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("how", ["reader left", "closed"])
def test_output_that_nobody_reads_is_no_error(tmp_path: Path, how: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    shell = ["sh", "-c", 'exec "$@" >&-', "sh"] if how == "closed" else []
    done = subprocess.run(
        [*shell, *ALMANAC, "--version"],
        cwd=tmp_path,
        env=environment(tmp_path),
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        timeout=HANGS_AFTER_S,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_table_in_a_pipe_is_as_wide_as_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr(console.people, "_width", None)
    words = "two words " * 30
    table = console.Table("name", "value")
    table.add_row("long", words)
    console.people.print(table)
    console.people.print(words)
    assert [words in line for line in capsys.readouterr().out.splitlines()].count(True) == 2
