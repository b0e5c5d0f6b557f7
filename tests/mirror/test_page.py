"""Each command of docs/mirror.md runs with the real program, or its arguments are checked."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.deploy.page import almanac_commands, blocks, blocks_of, parse
from tests.free_ports import free_port
from tests.hangs import HANGS_AFTER_S, wait_for
from tests.test_cli import ROOT, environment
from warehouse.home import Home

PAGE = ROOT / "docs" / "mirror.md"
PORTS = {port: str(free_port()) for port in ("8651", "8652")}


@pytest.fixture(scope="module")
def folder(filled_home: Home, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that looks like a clone with a home of several days."""
    folder = tmp_path_factory.mktemp("clone")
    shutil.copytree(filled_home.root, folder / "data")
    Home(folder / "data").claim("sandbox:1")
    tools = folder / ".venv" / "bin"
    tools.mkdir(parents=True)
    (tools / "almanac").write_text(f'#!/bin/sh\nexec {sys.executable} -m pipeline "$@"\n')
    (tools / "almanac").chmod(0o755)
    return folder


def text_of(mark: str) -> str:
    text = "".join(block.text for block in blocks_of(mark, PAGE))
    for written, free in PORTS.items():
        text = text.replace(written, free)
    return text


@contextmanager
def started(mark: str, folder: Path, port: str) -> Iterator[None]:
    """Run a block that starts a server, until it answers."""
    words = shlex.split(text_of(mark))
    if "--port" not in words:
        words += ["--port", PORTS[port]]
    with subprocess.Popen(words, cwd=folder, env=environment(folder / "data")) as process:
        try:
            wait_for(lambda: _answers(PORTS[port]) or process.poll() is not None)
            assert process.poll() is None
            yield
        finally:
            process.terminate()


def _answers(port: str) -> bool:
    try:
        return httpx.get(
            f"http://127.0.0.1:{port}/healthz", verify=False, timeout=HANGS_AFTER_S
        ).is_success
    except httpx.TransportError:
        return False


def run(text: str, folder: Path) -> str:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", text],
        cwd=folder,
        env={**environment(folder / "data"), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER_S,
    )
    assert done.returncode == 0, f"{text}\n{done.stdout}{done.stderr}"
    assert '"error"' not in done.stdout, f"{text}\n{done.stdout}"
    return done.stdout


def test_each_request_of_the_page_is_answered_with_data(folder: Path) -> None:
    with started("mirror start", folder, "8651"):
        for block in blocks_of("mirror", PAGE):
            lines = block.text.replace("8651", PORTS["8651"]).splitlines()
            assigned = [line for line in lines if not line.startswith("curl")]
            for line in lines:
                if not line.startswith("curl"):
                    continue
                answer = run("\n".join([*assigned, line]), folder)
                if '"data"' in answer and "cursor=$" not in line:
                    assert json.loads(answer)["data"], line
                else:
                    assert answer or " -o " in line, line
    then, now = ((folder / name).read_text() for name in ("as-known-then.csv", "march.csv"))
    assert then.splitlines()[0] == now.splitlines()[0]
    assert len(then.splitlines()) > 1
    assert then != now


def test_each_order_of_the_page_moves_the_clock_of_a_replay(folder: Path) -> None:
    with started("replay start", folder, "8652"):
        answers = [json.loads(run(line, folder)) for line in text_of("replay").splitlines()]
    clock, stepped, noon, changes, advanced, running = answers
    assert (clock["now"], clock["changes"]["known"]) == ("2026-02-25T12:00:00Z", 0)
    assert stepped["changes"]["known"] >= 1
    assert noon["now"] == "2026-02-26T12:00:00Z"
    assert changes["data"]
    assert advanced["now"] == "2026-02-26T14:00:00Z"
    assert running["running"] or running["ended"]


def test_the_key_of_the_page_is_made(folder: Path) -> None:
    assert re.search(r"alm2_\w+", run(text_of("keys"), folder))


def test_every_block_of_commands_says_where_it_runs_and_its_commands_exist() -> None:
    marks = {block.mark for block in blocks(PAGE) if block.language == "sh"}
    assert marks == {
        *("mirror start", "mirror", "replay start", "replay", "keys"),
        *("server", "containers", "kubernetes"),
    }
    (start,) = blocks_of("server", PAGE)[0].commands
    assert (ROOT / "deploy" / "systemd" / start.split()[-1]).is_file()
    for mark in ("containers", "kubernetes"):
        for block in blocks_of(mark, PAGE):
            for line in block.commands:
                for words in almanac_commands(line):
                    parse(words)
