"""If a service repeats the key in every part of its answers, the key is stored nowhere.

Real commands run on a real home; then every file, output and process is searched for the key.
"""

import json
import sqlite3
import stat
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pytest
import zstandard

from catalog.sandbox.sandbox import Sandbox
from tests.hangs import HANGS_AFTER_S, wait_for
from tests.pipeline.automation.daemon import ui
from tests.pipeline.secrecy.repeating_service import (
    ANSWERS,
    HOOK,
    KEY,
    PUSH_SECRETS,
    SPELLINGS,
    RepeatingService,
    traces_in,
)
from tests.test_cli import ALMANAC, environment

QUICK_RUNS: tuple[dict[str, str], ...] = (
    {},
    {
        "export": "cut",
        "coins": "error 200",
        "categories": "page",
        "cancellations": "nothing like it",
    },
)
"""For each run of the default tests, the kind of answer by the end of the path."""
FEEDS = ("usage", "coins", "events", "export")
"""The paths that get a bad answer in the long test, one after the other."""
QUICK_COMMANDS = (
    *(("status", "--alert"), ("status", "--json"), ("doctor",), ("batches", "list")),
    *(("sql", "SELECT * FROM batches"), ("report", "--post")),
)
LONG_COMMANDS = (
    *QUICK_COMMANDS,
    *(("verify",), ("budget",), ("sql", "SELECT * FROM events", "--format", "json")),
)


class Owner:
    """The owner of the key, who starts commands and keeps their output."""

    def __init__(self, folder: Path, service: RepeatingService) -> None:
        self.home = folder / "data"
        self.temporary = folder / "tmp"
        self.folder = folder
        self.temporary.mkdir()
        secrets = folder / "key"
        secrets.mkdir()
        for name, secret in (
            ("api_key", KEY),
            ("alert_url", f"http://127.0.0.1:9/{HOOK}"),
            ("digest_url", f"http://127.0.0.1:9/{HOOK}"),
            ("webhook_secrets", "\n".join(PUSH_SECRETS)),
        ):
            file = secrets / f"almanac_{name}"
            file.write_text(secret)
            file.chmod(0o600)
        self.env = {
            **environment(self.home),
            "ALMANAC_BASE_URL": service.base_url,
            "ALMANAC_SECRETS_DIR": str(secrets),
            "ALMANAC_PLAN": "enterprise",
            "ALMANAC_COINS": "bitcoin",
            "TMPDIR": str(self.temporary),
        }
        self.output: list[str] = []

    def start(self, *words: str, **given: str) -> str:
        done = subprocess.run(
            [*ALMANAC, *words],
            cwd=self.folder,
            env={**self.env, **given},
            capture_output=True,
            timeout=HANGS_AFTER_S,
            umask=0o022,
        )
        output = (done.stdout + done.stderr).decode()
        assert "Traceback" not in output, output
        assert traces_in(output.encode()) == [], output
        self.output.append(output)
        return output


@pytest.fixture
def owner(tmp_path: Path, almanac_sandbox: Sandbox) -> Iterator[tuple[Owner, RepeatingService]]:
    key = almanac_sandbox.new_key("enterprise", rate_per_s=1e6, burst=1_000_000)
    with RepeatingService(almanac_sandbox.base_url, key).serving() as service:
        yield Owner(tmp_path, service), service


@contextmanager
def watched_processes() -> Iterator[list[str]]:
    """Watch the arguments of every process, and yield a list of those that show the key."""
    found: list[str] = []
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(0.2):
            for words in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    output = words.read_bytes()
                except OSError:
                    continue  # It has ended.
                if traces_in(output):
                    found.append(output.decode())

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield found
    finally:
        stop.set()
        thread.join()


def contents(path: Path) -> Iterator[bytes]:
    """Yield the bytes of a file, and its unpacked content."""
    data = path.read_bytes()
    yield str(path).encode() + data
    if path.suffix == ".zst":
        yield zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True).read()
    elif path.suffix == ".parquet":
        yield from _rows(f"SELECT * FROM '{path}'")
        yield from _rows(f"SELECT * FROM parquet_kv_metadata('{path}')")
    elif path.suffix == ".duckdb":
        with duckdb.connect() as connection:
            connection.execute(f"ATTACH '{path}' AS home (READ_ONLY)")
            named = (
                "SELECT schema_name, table_name FROM duckdb_tables() WHERE database_name = 'home'"
            )
            for schema, name in connection.execute(named).fetchall():
                found = connection.execute(f'SELECT * FROM home."{schema}"."{name}"').fetchall()
                yield str(found).encode()
    elif data.startswith(b"SQLite format 3"):
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
            yield "\n".join(database.iterdump()).encode()


def _rows(query: str) -> Iterator[bytes]:
    with duckdb.connect() as connection:
        yield str(connection.execute(query).fetchall()).encode()


def assert_kept_nowhere(owner: Owner) -> None:
    files = [
        path
        for path in owner.folder.rglob("*")
        if path.is_file() and path.parent != owner.folder / "key"
    ]
    assert len(files) > 20
    kept = {
        path: found for path in files for content in contents(path) if (found := traces_in(content))
    }
    assert kept == {}


def assert_private(owner: Owner) -> None:
    """Assert that files made under a usual umask are accessible to their owner only."""
    paths = [
        path for root in (owner.home, owner.folder / "machine") for path in (root, *root.rglob("*"))
    ]
    names = {path.name for path in paths}
    assert {"warehouse.duckdb", "home.json", "dagster.yaml", "landing", "runs.db"} <= names
    assert [path for path in paths if stat.S_IMODE(path.lstat().st_mode) & 0o077] == []


def run_commands(owner: Owner, commands: tuple[tuple[str, ...], ...]) -> None:
    """Start the commands that show received data."""
    for words in commands:
        owner.start(*words)
    listed = json.loads(owner.start("batches", "list", "--json"))
    assert any(batch["why"] or batch["why_incomplete"] for batch in listed)
    owner.start("batches", "list", listed[0]["batch_id"])


def test_the_key_is_found_nowhere(owner: tuple[Owner, RepeatingService]) -> None:
    user, service = owner
    with watched_processes() as shown:
        for answers in QUICK_RUNS:
            service.answers = answers
            user.start("run")
        service.answers = {"usage": "plan"}
        assert "[api key removed]" in user.start("doctor", ALMANAC_PLAN="").lower()
        service.answers = {"events": "error 403"}
        user.start("backfill", "--from", "2026-03-01", "--to", "2026-03-31", "--yes")
    assert shown == []
    assert service.request_count > len(SPELLINGS)
    service.answers = {}
    run_commands(user, QUICK_COMMANDS)
    assert "repeated the API key" in "".join(user.output)
    assert_kept_nowhere(user)
    assert_private(user)


@pytest.mark.long
@pytest.mark.parametrize("name", ANSWERS)
def test_the_key_is_stored_nowhere_for_each_kind_of_answer(
    name: str, owner: tuple[Owner, RepeatingService]
) -> None:
    user, service = owner
    user.start("run")
    for feed in FEEDS:
        service.answers = {feed: name}
        user.start("run")
    service.answers, service.usual = {}, name
    for words in (("run",), ("doctor",), ("backfill", "--from", "2026-03-01", "--yes")):
        user.start(*words)
    service.usual = "good"
    run_commands(user, LONG_COMMANDS)
    assert_kept_nowhere(user)


@pytest.mark.long
def test_no_page_of_dagster_shows_the_key(owner: tuple[Owner, RepeatingService]) -> None:
    user, service = owner
    user.start("run")
    everything = """
        query($id: ID!) {
          runOrError(runId: $id) { ... on Run { status runConfigYaml tags { value } } }
          logsForRun(runId: $id) { ... on EventConnection { events {
            ... on MessageEvent { message }
            ... on ErrorEvent { error { message stack causes { message } } }
            ... on MaterializationEvent { metadataEntries { label description
              ... on TextMetadataEntry { text } ... on MarkdownMetadataEntry { mdStr } } } } } } }
    """
    day = max(path.name for path in (user.home / "landing" / "batches").iterdir())
    with watched_processes() as shown, ui(user.home, user.env) as (_, pages):
        for answers in ({}, {"coins": "error 403"}, {"coins": "page"}, {"coins": "cut"}):
            service.answers = answers
            run_id = pages.materialise("landed_coins", day)
            wait_for(lambda run=run_id: pages.run_status(run) in ("SUCCESS", "FAILURE"))
            page: dict[str, Any] = pages.query(everything, id=run_id)
            assert "messages" in json.dumps(page) or "message" in json.dumps(page)
            assert traces_in(json.dumps(page).encode()) == []
        time.sleep(1)
    assert shown == []
    assert_kept_nowhere(user)
