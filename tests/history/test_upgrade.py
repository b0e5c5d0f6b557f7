"""A home that a released version made has the same history in the present code.

The code of each release is exported from git and runs in a process of its own: it pulls a sandbox
twice, and merges one webhook and acknowledges another. Then the present code takes the home over in
steps: it merges, pulls another day, refolds from a checkpoint, and rebuilds. Each file that it
publishes is compared with that of the release. The long form pulls with `almanac run`.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import duckdb
import httpx
import pytest

from catalog.contract.constants import SIGNATURE_HEADER
from catalog.contract.signatures import sign
from catalog.sandbox.sandbox import Sandbox
from pipeline.service_session import open_service
from pipeline.settings import Settings
from resources.session import pull
from tests.hangs import HANGS_AFTER_S
from tests.history.stories.disk import without_syncs
from tests.test_cli import ALMANAC, ROOT, almanac_here, environment
from tests.warehouse.inbox.deliveries import delivery
from warehouse.history.merge import merge
from warehouse.home import Home
from warehouse.landing.batches import Feed

RELEASES: Final = {"0.1.0": "be74a04d95c1fd685a190e87a9c26b2243baf54d"}
"""The commit of each release. CONTRIBUTING.md says when to add one."""
PULLS: Final = (datetime(2018, 3, 1, 12, tzinfo=UTC), datetime(2018, 3, 8, 12, tzinfo=UTC))
SECRET: Final = "whsec_of-the-tests-0123456789"
STEPS: Final = ("merged", "next day", "refolded", "rebuilt")
MACROS: Final = ("events_as_of", "coins_as_of", "event_coins_as_of", "coverage_at")
UNKNOWN: Final = """
UPDATE rows1 SET unknown_fields = list_filter(unknown_fields, lambda name: name IN $columns)
"""
"""A release does not say that it does not know columns of a later one."""
DOUBTED: Final = """
UPDATE rows{place} SET date_precision = NULL, earliest = NULL, latest = NULL
WHERE event_id IN (SELECT event_id FROM rows1 WHERE date_doubt IS NOT NULL)
"""
"""A release takes the period of the date where the displayed period is another."""
SAME: Final = (set[str](), 0, 0)
FEEDS: Final[tuple[Feed, ...]] = ("export", "events", "cancellations", "coins", "categories")
RUN_COMMANDS: Final = """
import json, sys
from typer.testing import CliRunner
from almanac.command_line import app
from pipeline.service_session import open_service
from pipeline.settings import Settings
from resources.session import pull

for line in sys.stdin:
    if line.startswith("pull"):
        with open_service(Settings()) as service:
            for feed in line.split()[1:]:
                pull(feed, service)
        line = '["merge"]'
    done = CliRunner().invoke(app, json.loads(line))
    print(json.dumps([done.exit_code, done.stdout, done.stderr]), flush=True)
"""
"""A program that runs a command for each line, or pulls feeds and merges: `almanac run` without
Dagster. Each start of a release takes seconds."""
each_step = pytest.mark.parametrize("step", STEPS)


@dataclass(frozen=True, slots=True)
class UpgradedHome:
    """What the release and the present code made of one home.

    `folder` has the published file of the release (`released.duckdb`), and of each step.
    """

    folder: Path
    changes: Sequence[dict[str, Any]]
    """The changes that `almanac watch` of the release printed."""
    later: Sequence[dict[str, Any]]
    """Those that the present code printed, when it continued after the first of them."""
    refolded: Sequence[date]
    """The days that were refolded from a checkpoint of the release."""

    def differences(self, step: str, *queries: str) -> dict[str, tuple[set[str], int, int]]:
        """Return for each query what only the release has: columns, and the number of rows.

        The last number is of the rows that only the step has. Rows are compared by the columns that
        both have.
        """
        found = {}
        with closing(duckdb.connect()) as connection:
            run = connection.execute
            run("SET TimeZone = 'UTC'")
            for place, name in enumerate(("released", step)):
                run(f"ATTACH '{self.folder / name}.duckdb' AS file{place} (READ_ONLY)")
            for query in queries:
                columns = []
                for place in (0, 1):
                    run(f"USE file{place}")
                    run(f"CREATE OR REPLACE TEMP TABLE rows{place} AS {query}")
                    columns.append([name for name, *_ in run(f"DESCRIBE rows{place}").fetchall()])
                shared = [name for name in columns[0] if name in columns[1]]
                if "unknown_fields" in shared:
                    run(UNKNOWN, {"columns": columns[0]})
                if {"date_doubt", "earliest"} <= {*columns[1]}:
                    for place in (0, 1):
                        run(DOUBTED.format(place=place))
                listed = ", ".join(shared)
                lost, new = (
                    run(
                        f"SELECT count(*) FROM (SELECT {listed} FROM rows{one} "
                        f"EXCEPT ALL SELECT {listed} FROM rows{other})"
                    ).fetchall()[0][0]
                    for one, other in ((0, 1), (1, 0))
                )
                found[query] = {*columns[0]} - {*columns[1]}, lost, new
        return found

    def rows(self, step: str, query: str) -> list[tuple[Any, ...]]:
        path = str(self.folder / f"{step}.duckdb")
        with closing(duckdb.connect(path, read_only=True)) as connection:
            return connection.execute(query).fetchall()


@pytest.fixture(scope="module", params=["pulls", pytest.param("run", marks=pytest.mark.long)])
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module", params=RELEASES)
def upgraded(
    request: pytest.FixtureRequest, way: str, tmp_path_factory: pytest.TempPathFactory
) -> UpgradedHome:
    folder = tmp_path_factory.mktemp("upgraded")
    export_release(RELEASES[request.param], folder / "code")
    with without_syncs(), Sandbox(now=PULLS[0], export_interval_s=0) as sandbox:
        return upgrade(folder, sandbox, with_run=way == "run")


def export_release(commit: str, folder: Path) -> None:
    """Write the code of a release into a folder; skip without it in git, fail in the workflow."""
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True)
    if archive.returncode:
        why = f"git has no commit {commit[:8]} here ({archive.stderr.decode().strip()}): "
        why += "run the tests in a clone with the whole history (git fetch --unshallow)"
        (pytest.fail if os.environ.get("GITHUB_ACTIONS") else pytest.skip)(why)
    folder.mkdir()
    subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)


def upgrade(folder: Path, sandbox: Sandbox, *, with_run: bool) -> UpgradedHome:
    home, code = folder / "home", folder / "code"
    home.mkdir()
    settings = {"base_url": sandbox.base_url, "api_key": sandbox.new_key("elite")}
    settings |= {"webhook_secrets": SECRET, "max_clock_skew_days": "36500"}
    lines = (f"ALMANAC_{name.upper()}={value}\n" for name, value in settings.items())
    (home / ".env").write_text("".join(lines))
    (home / ".env").chmod(0o600)

    def start(*words: str) -> subprocess.Popen[str]:
        given = {"cwd": home, "env": environment(home, code), "text": True}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        return subprocess.Popen([sys.executable, *words], **given, **pipes)

    def released(*words: str) -> str:
        return send(json.dumps(words))

    def send(line: str) -> str:
        assert commands.stdin is not None and commands.stdout is not None
        commands.stdin.write(line + "\n")
        commands.stdin.flush()
        code, output, errors = json.loads(commands.stdout.readline())
        assert code == 0, errors
        return str(output)

    def present(*words: str) -> str:
        done = almanac_here(home, *words)
        assert done.exit_code == 0, done.output
        return done.stdout

    def keep(name: str) -> None:
        shutil.copyfile(home / "warehouse.duckdb", folder / f"{name}.duckdb")

    with start("-c", RUN_COMMANDS) as commands:
        for at in PULLS:
            sandbox.set_clock(at)
            send('["run", "--json"]' if with_run else " ".join(["pull", *FEEDS]))
        with start(*ALMANAC[1:], "receive", "--port", "0", "--json") as receiver:
            assert receiver.stdout is not None
            url = json.loads(receiver.stdout.readline())["url"]
            deliver(url, delivery(1, at=PULLS[-1]), PULLS[-1])
            released("merge")
            later = PULLS[-1] + timedelta(minutes=1)
            deliver(url, delivery(2, kind="updated", at=later, id="evt_1", title="Renamed"), later)
            receiver.kill()
        keep("released")
        changes = lines_of(released("watch", "--since", PULLS[0].isoformat(), "--once"))
    present("merge")
    keep("merged")
    later = lines_of(present("changes", "--follow", "--since", changes[0]["cursor"], "--once"))
    sandbox.set_clock(PULLS[-1] + timedelta(days=1))
    if with_run:
        assert json.loads(present("run", "--json"))["source"] == sandbox.base_url
    else:
        given = {"base_url": sandbox.base_url, "api_key": settings["api_key"]}
        with open_service(Settings(home=home, state=folder / "machine", **given)) as service:
            for feed in FEEDS:
                pull(feed, service)
        present("merge")
    keep("next day")
    refolded = merge(Home(home), refold_from=PULLS[-1].date()).days
    keep("refolded")
    present("rebuild")
    keep("rebuilt")
    return UpgradedHome(folder, changes, later, refolded)


def deliver(url: str, body: bytes, at: datetime) -> None:
    """Send a signed webhook, which must be acknowledged."""
    headers = {SIGNATURE_HEADER: sign(body, secrets=[SECRET], at=at)}
    answer = httpx.post(url, content=body, headers=headers, timeout=HANGS_AFTER_S)
    assert answer.status_code == 204


def lines_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@each_step
def test_upgrade_keeps_each_version_with_its_times_and_place(
    upgraded: UpgradedHome, step: str
) -> None:
    ((last, versions),) = upgraded.rows(
        "released", "SELECT max(known_from)::VARCHAR, count(*) FROM event_versions"
    )
    assert versions > 2_000
    then = (
        f"SELECT * REPLACE (if(known_to <= '{last}', known_to, NULL) AS known_to) "
        f"FROM event_versions WHERE known_from <= '{last}'"
    )
    assert upgraded.differences(step, then) == {then: SAME}


def test_upgrade_keeps_the_answers_as_of_a_past_time(upgraded: UpgradedHome) -> None:
    asked = [f"FROM {macro}('{ts}')" for macro in MACROS for ts in PULLS]
    assert upgraded.differences("rebuilt", *asked) == dict.fromkeys(asked, SAME)
    assert all(upgraded.rows("released", query) for query in asked)


def test_upgrade_loses_no_row_or_column_of_a_table(upgraded: UpgradedHome) -> None:
    tables = upgraded.rows(
        "released", "SELECT table_name FROM duckdb_tables() WHERE schema_name = 'main'"
    )
    found = upgraded.differences("merged", *(f"FROM {name}" for (name,) in tables))
    changed = {"FROM events", "FROM event_versions"}
    assert {query for query, rows in found.items() if rows[:2] != SAME[:2]} == changed


def test_upgrade_merges_a_webhook_that_the_release_acknowledged(upgraded: UpgradedHome) -> None:
    query = "SELECT version, title FROM event_versions WHERE event_id = 'evt_1' ORDER BY 1"
    assert upgraded.rows("released", query) == [(1, "Event 1")]
    assert upgraded.rows("merged", query) == [(1, "Event 1"), (2, "Renamed")]


def test_upgrade_continues_after_a_cursor_of_the_release(upgraded: UpgradedHome) -> None:
    *old, new = upgraded.later
    for found, expected in zip(old, upgraded.changes[1:], strict=True):
        same = expected.keys() - {"cursor", "knownTo"}
        assert {name: found[name] for name in same} == {name: expected[name] for name in same}
    assert new["event"]["title"] == "Renamed"


def test_upgrade_refolds_from_a_checkpoint(upgraded: UpgradedHome) -> None:
    assert upgraded.refolded == [PULLS[1].date(), PULLS[1].date() + timedelta(days=1)]
