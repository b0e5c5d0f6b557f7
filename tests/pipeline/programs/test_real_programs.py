"""The real `almanac ui` and `almanac daemon`: ended, killed, read-only, behind a path."""

import os
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from catalog.sandbox.sandbox import Sandbox
from tests.hangs import HANGS_AFTER_S, wait_for
from tests.pipeline.automation.daemon import (
    CODE_SERVER,
    DAEMON,
    WEBSERVER,
    Pages,
    log_of,
    pid_of,
    programs_on,
    ui,
)
from tests.test_cli import ALMANAC, environment

pytestmark = [pytest.mark.long, pytest.mark.timeout(3_600)]

PAGE_S = 0.8
CHANGE = 'mutation { setConcurrencyLimit(concurrencyKey: "x", limit: 1) }'
RUNS = "query { runsOrError { ... on Runs { results { status pipelineName } } } }"
LOCATIONS = """
query { workspaceOrError { ... on Workspace { locationEntries {
  locationOrLoadError { __typename }
} } } }
"""


@pytest.fixture
def service() -> Iterator[Sandbox]:
    with Sandbox(seed=1, export_interval_s=0) as sandbox:
        yield sandbox


@pytest.fixture
def env(tmp_path: Path, service: Sandbox) -> dict[str, str]:
    return {
        **environment(tmp_path / "home"),
        "ALMANAC_BASE_URL": service.base_url,
        "ALMANAC_API_KEY": service.new_key("pro"),
    }


@contextmanager
def daemon(home: Path, env: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """Run `almanac daemon` on a home."""
    process = subprocess.Popen(
        [*ALMANAC, "daemon", "--json"],
        cwd=home.parent,
        env=env,
        stdout=subprocess.PIPE,
        stderr=log_of(home).open("wb"),
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline(), log_of(home).read_text()
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait(HANGS_AFTER_S)


def pages_of(service: Sandbox) -> Counter[str]:
    """Return how often each page of the events was answered."""
    return Counter(
        request.query
        for request in service.requests
        if request.path == "/v2/events" and request.status == 200
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_in_a_pull_ends_all_and_no_page_is_paid_twice(
    tmp_path: Path, env: dict[str, str], service: Sandbox, number: signal.Signals
) -> None:
    home = tmp_path / "home"
    service.faults.set(f"slow={PAGE_S}")
    with daemon(home, env) as process:
        # The first pull of a new home; the page after the third is on its way.
        wait_for(lambda: len(pages_of(service)) >= 3)
        time.sleep(PAGE_S / 3)
        paid = set(pages_of(service))
        process.send_signal(number)
        assert process.wait(HANGS_AFTER_S) == 130
    assert not programs_on(home)
    service.faults.set("")
    with daemon(home, env):
        # Dagster starts the interrupted run again.
        wait_for(lambda: list((home / "landing" / "batches").glob("*/*-events-*")))
    times = pages_of(service)
    assert {page: times[page] for page in paid} == dict.fromkeys(paid, 1)


@pytest.mark.parametrize("program", [CODE_SERVER, DAEMON, WEBSERVER])
def test_a_killed_program_ends_all_and_the_next_start_works(
    tmp_path: Path, env: dict[str, str], program: str
) -> None:
    home = tmp_path / "home"
    with ui(home, env) as (process, _):
        os.kill(pid_of(home, program), signal.SIGKILL)
        assert process.wait(HANGS_AFTER_S) == 1
        assert "ended by SIGKILL" in log_of(home).read_text()
    assert not programs_on(home)
    with ui(home, env) as (_, pages):
        assert is_loaded(pages)
        wait_for(lambda: is_well(env))


def test_programs_end_with_a_killed_starter_and_the_next_start_works(
    tmp_path: Path, env: dict[str, str]
) -> None:
    home = tmp_path / "home"
    with ui(home, env) as (process, _):
        process.kill()
        process.wait()
        with ui(home, env) as (_, pages):
            assert is_loaded(pages)
    assert not programs_on(home)


def test_no_run_is_stuck_after_all_programs_were_killed_in_it(
    tmp_path: Path, env: dict[str, str], service: Sandbox
) -> None:
    home = tmp_path / "home"
    service.faults.set(f"slow={PAGE_S}")
    for _ in range(3):
        with ui(home, env) as (process, pages):
            before = len(pages_of(service))
            wait_for(lambda before=before: len(pages_of(service)) > before + 1)
            process.kill()
            for pid, _ in programs_on(home):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.wait()
    service.faults.set("")
    with ui(home, env) as (_, pages):
        wait_for(lambda: list((home / "landing" / "batches").glob("*/*-events-*")))

        def all_ended() -> bool:
            runs = pages.query(RUNS)["runsOrError"]["results"]
            return bool(runs) and {run["status"] for run in runs} <= {"SUCCESS", "FAILURE"}

        wait_for(all_ended)


def is_loaded(pages: Pages) -> bool:
    """Whether the pages answer and have the definitions."""
    try:
        return "RepositoryLocation" in str(pages.query(LOCATIONS))
    except httpx.HTTPError:
        return False


def is_well(env: dict[str, str]) -> bool:
    done = subprocess.run([*ALMANAC, "daemon", "--check"], env=env, capture_output=True)
    return done.returncode == 0


def test_pages_behind_a_path_that_only_read_refuse_every_change(
    tmp_path: Path, env: dict[str, str]
) -> None:
    home = tmp_path / "home"
    with ui(home, env, "--path-prefix", "/almanac/", "--read-only") as (_, pages):
        assert pages.address.endswith("/almanac")
        answer = httpx.get(f"{pages.address}/server_info", trust_env=False, timeout=HANGS_AFTER_S)
        assert answer.json()["dagster_version"]
        change = httpx.post(
            f"{pages.address}/graphql",
            json={"query": CHANGE},
            trust_env=False,
            timeout=HANGS_AFTER_S,
        )
        assert "GrapheneUnauthorizedError" in change.text
        for form in ("/graphql", "/graphql/", "/graphql%0a", "//graphql%0a", "/%67raphql%0A"):
            asked = f"{pages.address}{form}"
            linked = httpx.get(
                asked, params={"query": CHANGE}, trust_env=False, timeout=HANGS_AFTER_S
            )
            assert linked.status_code in (400, 405)
        limits = "{ instance { concurrencyLimits { concurrencyKey } } }"
        assert "'x'" not in str(pages.query(limits))
        assert is_loaded(pages)
        idle = programs_on(home)
        assert len(idle) == 3
        assert sum(pss_mib(pid) for pid, _ in idle) < 450


def pss_mib(pid: int) -> float:
    """Return the memory of a process in MiB, its part of what is shared included (PSS)."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    (found,) = re.findall(r"^Pss:\s+(\d+) kB", rollup, re.MULTILINE)
    return int(found) / 1024
