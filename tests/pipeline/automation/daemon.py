"""The real pages and daemon, used over GraphQL on a port of their own."""

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.free_ports import free_port
from tests.hangs import HANGS_AFTER_S, wait_for
from tests.test_cli import ALMANAC

BACKFILL = """
mutation($variables: LaunchBackfillParams!) {
  launchPartitionBackfill(backfillParams: $variables) {
    __typename ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message }
  }
}
"""
MATERIALISE = """
mutation($variables: ExecutionParams!) {
  launchPipelineExecution(executionParams: $variables) {
    __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message }
  }
}
"""
BACKFILL_STATUS = """
query($id: String!) {
  partitionBackfillOrError(backfillId: $id) {
    ... on PartitionBackfill { status runs(limit: 20) { status assetSelection { path } } }
  }
}
"""
RUN_MESSAGES = """
query($id: ID!) {
  logsForRun(runId: $id) {
    ... on EventConnection { events { ... on MessageEvent { message } } }
  }
}
"""
LOCATIONS = """
query { workspaceOrError { ... on Workspace { locationEntries {
  locationOrLoadError { __typename }
} } } }
"""


class Pages:
    """A client of Dagster's GraphQL."""

    def __init__(self, address: str) -> None:
        self.address = address

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2].partition("/")[0])

    def query(self, query: str, **values: Any) -> dict[str, Any]:
        answer = httpx.post(
            f"{self.address}/graphql",
            json={"query": query, "variables": values},
            timeout=HANGS_AFTER_S,
            trust_env=False,
        ).json()
        assert "errors" not in answer, answer
        data: dict[str, Any] = answer["data"]
        return data

    def materialise(self, asset: str, day: str) -> str:
        data = self.query(
            MATERIALISE,
            variables={
                "selector": {
                    "repositoryName": "__repository__",
                    "repositoryLocationName": "almanac",
                    "pipelineName": "__ASSET_JOB",
                    "assetSelection": [{"path": [asset]}],
                },
                "mode": "default",
                "executionMetadata": {"tags": [{"key": "dagster/partition", "value": day}]},
            },
        )
        return str(data["launchPipelineExecution"]["run"]["runId"])

    def worker_of(self, run_id: str) -> int | None:
        """Return the id of the process that executes a run, None until its log has it."""
        events = self.query(RUN_MESSAGES, id=run_id)["logsForRun"]["events"]
        found = re.search(r"\(pid: (\d+)\)", " ".join(event["message"] for event in events))
        return None if found is None else int(found[1])

    def is_up(self) -> bool:
        """Whether the pages answer and have the definitions."""
        try:
            return "RepositoryLocation" in str(self.query(LOCATIONS))
        except httpx.HTTPError:
            return False


@contextmanager
def started(home: Path, env: dict[str, str], *words: str) -> Iterator[subprocess.Popen[str]]:
    """Run a command on a home until the end of the block."""
    process = subprocess.Popen(
        [*ALMANAC, *words],
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


@contextmanager
def ui(
    home: Path, env: dict[str, str], *words: str, path: str = ""
) -> Iterator[tuple[subprocess.Popen[str], Pages]]:
    """Run `almanac ui` on a home: its process, and its pages, once they answer."""
    port = free_port()
    with started(home, env, "ui", "--port", str(port), *words) as process:
        pages = Pages(f"http://127.0.0.1:{port}{path}")
        wait_for(lambda: pages.is_up() or process.poll() is not None)
        assert process.poll() is None, log_of(home).read_text()
        yield process, pages


def log_of(home: Path) -> Path:
    """Return the file with the standard error of `almanac ui`: a pipe would fill."""
    return home.with_name(f"{home.name}-ui.log")


def group_of(home: Path) -> int:
    """Return the process group of Dagster's programs on a home."""
    return int((home / "dagster" / "programs.lock").read_text())


def is_gone(group: int) -> bool:
    """Whether no process of a group is left."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False
