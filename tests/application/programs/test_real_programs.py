"""The real `almanac ui` and `almanac daemon`: ended, killed, read-only, behind a path."""

import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from catalog.sandbox.sandbox import Sandbox
from tests.hangs import HANGS_AFTER_S, wait_for
from tests.pipeline.automation.daemon import group_of, is_gone, started, ui
from tests.test_cli import ALMANAC, environment

pytestmark = [pytest.mark.long, pytest.mark.timeout(3_600)]

PAGE_S = 0.8
CHANGE = 'mutation { setConcurrencyLimit(concurrencyKey: "x", limit: 1) }'


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


def pages_of(service: Sandbox) -> Counter[str]:
    """Return how often each page of the events was answered."""
    return Counter(
        request.query
        for request in service.requests
        if request.path == "/v2/events" and request.status == 200
    )


def almanac(env: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*ALMANAC, *words], env=env, capture_output=True, text=True)


def test_a_signal_in_a_pull_ends_all_and_no_page_is_paid_twice(
    tmp_path: Path, env: dict[str, str], service: Sandbox
) -> None:
    home = tmp_path / "home"
    service.faults.set(f"slow={PAGE_S}")
    with started(home, env, "daemon") as process:
        # The first pull of a new home; the page after the third is on its way.
        wait_for(lambda: len(pages_of(service)) >= 3)
        time.sleep(PAGE_S / 3)
        paid = set(pages_of(service))
        process.send_signal(signal.SIGTERM)
        assert process.wait(HANGS_AFTER_S) == 130
    wait_for(lambda: is_gone(group_of(home)))
    service.faults.set("")
    with started(home, env, "daemon"):
        # Dagster starts the interrupted run again.
        wait_for(lambda: list((home / "landing" / "batches").glob("*/*-events-*")))
    times = pages_of(service)
    assert {page: times[page] for page in paid} == dict.fromkeys(paid, 1)


def test_programs_of_a_killed_command_are_named_and_no_others_are_started(
    tmp_path: Path, env: dict[str, str]
) -> None:
    home = tmp_path / "home"
    with ui(home, env) as (process, _):
        process.kill()
        process.wait()
        group = group_of(home)
        second = almanac(env, "daemon")
        assert second.returncode == 1
        assert f"still runs: process {group}. End it." in second.stderr
        os.kill(group, signal.SIGTERM)
        wait_for(lambda: is_gone(group))
    with ui(home, env):
        pass


def test_a_ui_behind_a_path_that_only_reads_refuses_every_change(
    tmp_path: Path, env: dict[str, str]
) -> None:
    with ui(tmp_path / "home", env, "--base-path", "/almanac", "--read-only", path="/almanac") as (
        _,
        pages,
    ):
        change = httpx.post(
            f"{pages.address}/graphql",
            json={"query": CHANGE},
            trust_env=False,
            timeout=HANGS_AFTER_S,
        )
        assert "GrapheneUnauthorizedError" in change.text
        limits = "{ instance { concurrencyLimits { concurrencyKey } } }"
        assert "'x'" not in str(pages.query(limits))
