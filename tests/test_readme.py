"""Each command of the README, the sandbox tour and the push page runs with the real program."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from almanac.command_line import commands
from pipeline.service_session import open_service
from pipeline.settings import markdown
from resources.session import pull
from tests.free_ports import free_port
from tests.hangs import HANGS_AFTER_S, wait_for, without_steps
from tests.pipeline.homes_in_days import settings_of
from tests.pipeline.small_home import PULLED
from tests.server.webhooks.receiver import Receiver
from tests.test_cli import ROOT, environment
from warehouse.history.merge import merge
from warehouse.home import Home
from warehouse.queries import QueryRefused, connected, run_sql

README = (ROOT / "README.md").read_text()
TOUR = (ROOT / "docs" / "sandbox.md").read_text()
PUSH = (ROOT / "docs" / "push.md").read_text()
COMMANDS_PAGE = (ROOT / "docs" / "commands.md").read_text()
WORDS_MAX = 700


COINS = (
    *("bitcoin", "ethereum", "tether", "ripple", "binancecoin", "dogecoin", "solana", "tron"),
    *("usd-coin", "chainlink", "sui", "hedera-hashgraph"),
)
"""They have a fifth of the events: some move on any three days."""
OF_SOME_COINS = f"ALMANAC_COINS={','.join(COINS)} .venv/bin/almanac"
NOW = datetime.now(UTC).replace(microsecond=0)
"""One instant for all sandboxes of this module, which then share the view of it."""
SMALL_CATALOG = "datetime(2018, 3, 1"
"""The examples of webhooks count no events; the catalog of that day takes no time to generate."""
# The commands are unchanged except for the ports, which another program may use.
PORTS = {port: str(free_port()) for port in ("8650", "8651", "8030")}


def blocks(name: str, *, page: str = TOUR, language: str = "sh") -> list[str]:
    found = re.findall(rf"<!-- {name} -->\n```{language}\n(.*?)```", page, re.DOTALL)
    assert found
    return [with_free_ports(block) for block in found]


def with_free_ports(text: str) -> str:
    for written, free in PORTS.items():
        text = text.replace(written, free)
    return text


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder that looks like a fresh clone, with the sandbox of the README, on its port."""
    folder = tmp_path_factory.mktemp("clone")
    tools = folder / ".venv" / "bin"
    tools.mkdir(parents=True)
    (tools / "python").symlink_to(sys.executable)
    (tools / "almanac").write_text(f'#!/bin/sh\nexec {sys.executable} -m application "$@"\n')
    (tools / "almanac").chmod(0o755)
    (sandbox,) = blocks("push sandbox", page=PUSH)
    with subprocess.Popen(
        [*shlex.split(sandbox), "--json", "--port", PORTS["8650"]],
        cwd=folder,
        env=scrubbed(folder),
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        output = process.stdout.readline()
        assert json.loads(output)["base_url"] == with_free_ports("http://127.0.0.1:8650")
        yield folder
        process.terminate()


def scrubbed(folder: Path) -> dict[str, str]:
    plain = environment(folder)
    del plain["ALMANAC_HOME"]
    return plain


def run(command: str, folder: Path) -> str:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        cwd=folder,
        env=scrubbed(folder),
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER_S,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def test_every_command_of_the_tour_answers_with_data_and_the_webhook_arrives(home: Path) -> None:
    first, single, moving = blocks("tour")
    for command in first.strip().splitlines():
        answer = run(command, home)
        assert '"error"' not in answer, command
        if "/v2/" in command and " -o " not in command:
            assert json.loads(answer) != {}
        if '"data"' in answer:
            assert json.loads(answer)["data"], f"{command} shows nothing"
    assert (home / "january.csv").read_text().startswith("id,slug,title")
    assert json.loads((home / "openapi.json").read_text())["openapi"].startswith("3.0")
    assert "error" not in run(single, home)
    with subprocess.Popen(
        ["bash", "-c", blocks("receiver")[0]],
        cwd=home,
        env=scrubbed(home),
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as receiver:
        try:
            wait_for(is_receiving)
            assert '"running":true' in run(moving, home)
            assert receiver.stdout is not None
            line = receiver.stdout.readline()
            assert re.match(r"20\d\d-\d\d-\d\dT\S+ events\.[a-z-]+ ", line)
        finally:
            os.killpg(receiver.pid, 9)


def test_what_the_sandbox_pushes_is_in_the_warehouse_of_the_receiver(home: Path) -> None:
    (receive,) = blocks("push receiver", page=PUSH)
    program = receive.strip().replace(" .venv", "; exec .venv")
    move, query = blocks("pushed", page=PUSH)[0].splitlines()
    with subprocess.Popen(
        ["bash", "-c", f"export {program} --port {PORTS['8030']} --json"],
        cwd=home,
        env=scrubbed(home),
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert json.loads(process.stdout.readline())["merge"]
            assert '"running":true' in run(move, home)
            wait_for((home / "pushed" / "warehouse.duckdb").exists)
            assert run(query, home).count("\n") > 1
        finally:
            process.terminate()


def is_receiving() -> bool:
    try:
        httpx.get(with_free_ports("http://127.0.0.1:8651/"), timeout=HANGS_AFTER_S)
    except httpx.TransportError:
        return False
    return True


def test_the_python_example_of_the_sandbox_runs(tmp_path: Path) -> None:
    """And the one of webhooks, which continues it, with a receiver and fewer deliveries."""
    example, webhooks = re.findall(r"```python\n(.*?)```", TOUR, re.DOTALL)
    receiver = Receiver()
    webhooks = webhooks.replace("http://127.0.0.1:8030/", receiver.url).replace("10_000", "40")
    examples = (example + webhooks).replace("datetime(2026, 3, 1", SMALL_CATALOG)
    assert examples.count(SMALL_CATALOG) == 2
    try:
        done = subprocess.run(
            [sys.executable, "-c", examples],
            cwd=tmp_path,
            env=environment(tmp_path),
            capture_output=True,
            text=True,
            timeout=HANGS_AFTER_S,
        )
    finally:
        receiver.close()
    assert re.fullmatch(r"\d+ changes in a day; \d+ events ahead\n", done.stdout), done.stderr
    assert done.returncode == 0, done.stderr
    assert len({delivery.id for delivery in receiver.received}) >= 40


@pytest.fixture(scope="module")
def three_days(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A fresh clone after a run of three days for some coins, and the summary that it printed."""
    folder = tmp_path_factory.mktemp("played")
    tools = folder / ".venv" / "bin"
    tools.mkdir(parents=True)
    script = f"#!{sys.executable}\nfrom almanac.command_line import main\n\nmain()\n"
    (tools / "almanac").write_text(script)
    (tools / "almanac").chmod(0o755)
    output = run(f"{OF_SOME_COINS} run --days 3 --json 2>&1", folder)
    (line,) = without_steps(output).splitlines()
    return folder, json.loads(line)


def test_a_run_of_three_days_prints_its_summary_in_one_line(
    three_days: tuple[Path, dict[str, Any]],
) -> None:
    folder, summary = three_days
    assert len(summary["days"]) == 3
    assert summary["instants"] == 7
    assert summary["rows"] > 0
    assert summary["changes"]["revealed"] > 0
    assert summary["rejected"] == 0
    assert (folder / summary["warehouse"]).stat().st_size == summary["warehouse_bytes"]


def test_the_queries_of_the_readme_answer_from_a_fresh_home(
    three_days: tuple[Path, dict[str, Any]],
) -> None:
    folder, _ = three_days
    for query in [*blocks("query", page=README), *blocks("query of a later day", page=README)]:
        assert run(query, folder).count("\n") > 1, query
    run_the_python_example(folder)


def test_the_audit_of_the_readme_finds_every_row_of_its_file(
    three_days: tuple[Path, dict[str, Any]],
) -> None:
    folder, _ = three_days
    (commands,) = blocks("audit", page=README)
    output = run(commands, folder)
    rows = len((folder / "signals.csv").read_text().splitlines()) - 1
    assert rows > 0
    noun = "row" if rows == 1 else "rows"
    expected = f"{rows} of {rows} {noun} used something that was not known at the decision"
    assert expected in " ".join(output.split())


def run_the_python_example(folder: Path) -> None:
    (example,) = blocks("python", page=README, language="python")
    done = subprocess.run(
        [sys.executable, "-c", example],
        cwd=folder,
        env=scrubbed(folder),
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER_S,
    )
    assert "displayed_date" in done.stdout, done.stderr


@pytest.mark.parametrize("plan", ["free", "pro", "elite"])
def test_the_queries_of_the_readme_answer_or_say_why_not_from_a_home_of_one_day(
    tmp_path: Path, plan: str
) -> None:
    home = Home(tmp_path / "data")
    settings = settings_of(home.root, plan=plan, coins=("bitcoin", "ethereum"))
    with open_service(settings, now=NOW) as service:
        for feed in PULLED:
            pull(feed, service)
    merge(home)
    for query in blocks("query", page=README):
        assert rows_of(query, home), query
    moved, early = blocks("query of a later day", page=README)
    assert rows_of(moved, home) == []
    with pytest.raises(QueryRefused, match="is before the first observation at 20"):
        rows_of(early, home)
    run_the_python_example(tmp_path)


def rows_of(command: str, home: Home) -> list[tuple[Any, ...]]:
    """Return what the query of a command of the README answers."""
    _, name, query = shlex.split(command)
    assert name == "sql"
    with connected(home.warehouse) as connection:
        return run_sql(connection, query).rows


def test_a_second_run_resumes_without_a_warning(three_days: tuple[Path, dict[str, Any]]) -> None:
    folder, _ = three_days
    output = run(f"{OF_SOME_COINS} run --days 3 2>errors", folder)
    assert "Try: .venv/bin/almanac sql" in output
    assert "     .venv/bin/almanac ui" in output
    assert "1 pull " in output
    assert "WARNING" not in output
    assert without_steps((folder / "errors").read_text()) == ""


def test_the_settings_page_equals_its_generated_text() -> None:
    assert (ROOT / "docs" / "settings.md").read_text() == markdown()


def test_every_command_and_make_target_that_is_named_exists() -> None:
    makefile = (ROOT / "Makefile").read_text()
    pages = README + TOUR + PUSH + COMMANDS_PAGE
    for target in re.findall(r"(?:`|^)make ([a-z-]+)", pages, re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    for name in re.findall(r"(?:`|bin/)almanac ([a-z]+)", pages):
        assert name in commands(), name


def test_the_page_of_commands_lists_each_command() -> None:
    rows = [row for row in COMMANDS_PAGE.splitlines() if row.startswith("| `almanac")]
    listed = {
        name for row in rows for name in re.findall(r"`(?:almanac )?([a-z]+)", row.split("|")[1])
    }
    assert set(commands()) <= listed


def test_the_readme_has_at_most_700_words() -> None:
    assert len(README.split()) <= WORDS_MAX
