"""Runs whose process was killed are marked as failed, and no others."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest

from pipeline.automation.dead_runs import PROCESS_TAG, fail_dead_runs, process_tags
from pipeline.build import build_definitions
from pipeline.instance import instance_of
from tests.pipeline.homes_in_days import settings_of
from tests.pipeline.run_records import start_dead_run, start_run, status_of
from warehouse.files.locks import host
from warehouse.home import Home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def failed_in(home: Home) -> list[str]:
    with instance_of(home) as instance:
        return fail_dead_runs(instance)


def test_a_run_is_failed_once_its_process_is_killed(home: Home) -> None:
    """It is a zombie until its parent waits for it."""
    script = (
        "from pipeline.automation.dead_runs import PROCESS_TAG, process_tags\n"
        "print(process_tags('x')[PROCESS_TAG], flush=True)\n"
        "input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        tag = process.stdout.readline().strip()
        run_id = start_run(home, tag.partition(" ")[2])
        assert failed_in(home) == []
        process.send_signal(signal.SIGKILL)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert failed_in(home) == [run_id]
    assert status_of(home, run_id) == "FAILURE"
    assert failed_in(home) == []


def test_a_process_with_the_id_of_an_ended_one_is_another(home: Home) -> None:
    run_id = start_run(home, f"{host()} {os.getpid()} 1")
    assert failed_in(home) == [run_id]


def test_runs_of_this_process_of_other_hosts_and_without_a_tag_stay(home: Home) -> None:
    own = process_tags("x")[PROCESS_TAG].partition(" ")[2]
    runs = [start_run(home, process) for process in (own, "elsewhere 1 1", "", "damaged")]
    assert failed_in(home) == []
    assert {status_of(home, run_id) for run_id in runs} == {"STARTED"}


def test_a_retry_is_not_judged_by_the_process_of_the_run_that_it_repeats(home: Home) -> None:
    dead = start_dead_run(home)
    with instance_of(home) as instance:
        run = instance.get_run_by_id(dead)
        assert run is not None
        tag = run.tags[PROCESS_TAG]
    start_run(home, "", **{PROCESS_TAG: tag})
    assert failed_in(home) == [dead]


def test_the_sensor_fails_dead_runs_and_requests_none(home: Home) -> None:
    dead = start_dead_run(home)
    sensor = (
        build_definitions(settings_of(home.root)).get_repository_def().get_sensor_def("dead_runs")
    )
    with (
        instance_of(home) as instance,
        dg.build_sensor_context(instance=instance) as context,
    ):
        evaluated = sensor.evaluate_tick(context)
    assert evaluated.run_requests == []
    assert evaluated.skip_message == f"Marked as failed: {dead}."


def test_a_run_has_the_tag_of_its_process(home: Home) -> None:
    home.claim("sandbox:1")
    job = build_definitions(settings_of(home.root)).resolve_job_def("prune")
    with instance_of(home) as instance:
        run_id = job.execute_in_process(instance=instance).run_id
        run = instance.get_run_by_id(run_id)
        assert run is not None
        assert run.tags.items() >= process_tags(run_id).items()
