"""If a service repeats the key in every part of its answers, the key is stored and shown nowhere.

Each command that receives or shows data runs on one home, `run` as a program, the others in this
process; then every file, output and process is searched for the key. Other doors are tested by the
pages, the mirror, the receiver and the posts (test_notices.py).
"""

import json
import os
import sqlite3
import stat
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import dagster as dg
import duckdb
import pytest
import zstandard

from almanac.core.timestamps import utc_now
from catalog.sandbox.sandbox import Sandbox
from pipeline.build import build_definitions
from pipeline.component import AlmanacComponent
from pipeline.instance import open_instance
from pipeline.settings import Settings, read_settings
from tests.hangs import HANGS_AFTER_S
from tests.pipeline.conftest import Almanac
from tests.pipeline.run_records import forked
from tests.pipeline.secrecy.repeating_service import (
    HOOK,
    KEY,
    PUSH_SECRETS,
    SPELLINGS,
    RepeatingService,
    traces_in,
)
from tests.test_cli import ALMANAC, environment
from warehouse.home import Home

CUT = {
    "export": "cut",
    "coins": "error 200",
    "categories": "page",
    "cancellations": "nothing like it",
}
"""Kinds of answer by the end of the path."""
COMMANDS = (
    *(("status", "--alert"), ("status", "--json"), ("doctor",), ("batches", "list"), ("verify",)),
    *(("sql", "SELECT * FROM batches"), ("budget",), ("changes",)),
    *(("export", "-o", "export.ics"), ("inbox", "list"), ("status", "--prometheus")),
)


class Owner:
    """The owner of the key, who runs commands and keeps their output."""

    def __init__(self, folder: Path, service: RepeatingService, almanac: Almanac) -> None:
        self.home = folder / "data"
        self.folder = folder
        self.output: list[str] = []
        self._almanac = almanac
        secrets = folder / "key"
        secrets.mkdir()
        for name, secret in (
            ("api_key", KEY),
            ("alert_url", f"http://127.0.0.1:9/{HOOK}"),
            ("webhook_secrets", "\n".join(PUSH_SECRETS)),
        ):
            file = secrets / f"almanac_{name}"
            file.write_text(secret)
            file.chmod(0o600)
        self.given = {
            "home": str(self.home),
            "base_url": service.base_url,
            "secrets_dir": str(secrets),
            "plan": "enterprise",
            "coins": "bitcoin",
        }

    def start(self, *words: str, **given: str) -> str:
        """Run a command in this process."""
        done = self._almanac(*words, code=None, **{**self.given, **given})
        assert done.exit_code in (0, 1), done.output
        return self._keep(done.output)

    def spawn(self, *words: str) -> str:
        """Run a command as a program, under a usual umask."""
        (self.folder / "tmp").mkdir()
        named = {f"ALMANAC_{name.upper()}": value for name, value in self.given.items()}
        done = subprocess.run(
            [*ALMANAC, *words],
            cwd=self.folder,
            env={**environment(self.home), **named, "TMPDIR": str(self.folder / "tmp")},
            capture_output=True,
            timeout=HANGS_AFTER_S,
            umask=0o022,
        )
        return self._keep((done.stdout + done.stderr).decode())

    def _keep(self, output: str) -> str:
        assert "Traceback" not in output, output
        assert traces_in(output.encode()) == [], output
        self.output.append(output)
        return output


@pytest.fixture
def service(almanac_sandbox: Sandbox) -> Iterator[RepeatingService]:
    key = almanac_sandbox.new_key("enterprise", rate_per_s=1e6, burst=1_000_000)
    with RepeatingService(almanac_sandbox.base_url, key).serving() as service:
        yield service


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


def fail_in_dagster(settings: Settings, home: Home) -> None:
    """Run a step that fails by an answer with the key, as the daemon does: with its output kept."""

    def run() -> None:
        job = build_definitions(settings).resolve_implicit_global_asset_job_def()
        with dg.DagsterInstance.from_config(str(home.dagster)) as instance:
            done = job.execute_in_process(
                instance=instance,
                partition_key=utc_now().date().isoformat(),
                asset_selection=[dg.AssetKey("landed_coins")],
                raise_on_error=False,
            )
        assert not done.success

    _, status = os.waitpid(forked(run), 0)  # The capture replaces the output of the process.
    assert status == 0
    outputs = [path.read_text() for path in home.dagster.glob("storage/*/compute_logs/*.err")]
    assert any("STEP_FAILURE" in output for output in outputs)


def assert_not_kept_by_dagster(settings: Settings, home: Home) -> None:
    with open_instance(home) as instance:
        runs = instance.get_runs()
        shown = [str(entry) for run in runs for entry in instance.all_logs(run.run_id)]
        shown += [f"{run.run_config} {run.tags}" for run in runs]
    component = AlmanacComponent(environment={"api_key": "CATALOG_KEY"})
    definitions = component.build_defs()
    shown += [repr(settings), repr(definitions.resources), repr(definitions.sensors)]
    shown += [repr(component), str(definitions.resolve_all_asset_specs())]
    assert len(shown) > 100
    assert traces_in("".join(shown).encode()) == []


def test_the_key_is_found_nowhere(
    tmp_path: Path, service: RepeatingService, almanac: Almanac, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = Owner(tmp_path, service, almanac)
    service.answers = CUT
    with watched_processes() as shown:
        user.spawn("run")
    assert shown == []
    assert_private(user)
    service.answers = {"usage": "plan"}
    assert "[api key removed]" in user.start("doctor", plan="").lower()
    service.answers = {"events": "error 403"}
    user.start("backfill", "--from", "2026-03-01", "--to", "2026-03-31", "--yes")
    service.answers = {}
    for words in COMMANDS:
        user.start(*words)
    listed = json.loads(user.start("batches", "list", "--json"))
    assert any(batch["why"] or batch["why_incomplete"] for batch in listed)
    user.start("batches", "list", listed[0]["batch_id"])
    assert "repeated the API key" in "".join(user.output)
    assert service.request_count > len(SPELLINGS)
    for name, value in user.given.items():
        monkeypatch.setenv(f"ALMANAC_{name.upper()}", value)
    service.answers = {"coins": "error 403"}
    fail_in_dagster(read_settings(), Home(user.home))
    monkeypatch.setenv("CATALOG_KEY", KEY)
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    assert_not_kept_by_dagster(read_settings(), Home(user.home))
    assert_kept_nowhere(user)
