"""`almanac serve --replay`: wrong ranges and options, and the end of a replay."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.application.mirror.replays import change_log, log_hash
from tests.pipeline.conftest import Almanac
from tests.warehouse.landed_days import FIRST, land
from warehouse.history.merge import merge
from warehouse.home import Home

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def three_days(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """Return a home with a pull on 29, 30 and 31 March 2026, at 06:00."""
    home = Home(tmp_path_factory.mktemp("home"))
    home.claim("s")
    for day in range(3):
        land(home, day)
    merge(home)
    return home


@pytest.mark.parametrize(
    ("options", "code", "reason"),
    [
        ("--replay soon", 2, "--replay 'soon': expected a form such as"),
        ("--replay 2026-03-30 --until later", 2, "--until 'later': expected a form such as"),
        ("--replay 2026-03-30 --speed 0", 2, "--speed 0: expected a number above 0"),
        ("--replay 2026-03-30 --speed -1", 2, "--speed -1: expected a number above 0"),
        ("--replay 2026-03-30 --speed nan", 2, "--speed nan: expected a number above 0"),
        ("--replay 2026-03-30 --speed 1e308", 2, "and at most 1e+09"),
        ("--speed 3600", 2, "--until, --speed and --paused are for --replay FROM"),
        ("--cors *", 2, "--cors: no page has the origin '*'; expected scheme and host"),
        ("--paused", 2, "--until, --speed and --paused are for --replay FROM"),
        (
            "--replay 2026-03-29T05:59:59Z",
            1,
            "there is no replay from 2026-03-29T05:59:59Z to 2026-03-31T06:00:00Z: history is from "
            "2026-03-29T06:00:00Z to 2026-03-31T06:00:00Z. Nothing was started.",
        ),
        ("--replay 2026-03-30 --until 2026-04-30", 1, "there is no replay from 2026-03-30"),
        ("--replay 2026-03-30 --until 2026-03-30", 1, "there is no replay from 2026-03-30"),
    ],
    ids=[
        *("unreadable", "unreadable-end", "stands", "backward", "no-number", "too-fast"),
        *("no-replay", "cors", "paused", "early", "late", "empty"),
    ],
)
def test_a_wrong_replay_is_one_line(
    almanac: Almanac, three_days: Home, options: str, code: int, reason: str
) -> None:
    home = str(three_days.root)
    done = almanac("serve", "--port", "0", *options.split(), code=code, home=home)
    assert reason in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_port_in_use_names_the_option_for_another(almanac: Almanac, three_days: Home) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        home = str(three_days.root)
        done = almanac("serve", "--port", port, "--replay", "2026-03-30", code=1, home=home)
    assert f"can't listen on 127.0.0.1 port {port}" in done.stderr
    assert "such as --port 0" in " ".join(done.stderr.split())


@pytest.mark.parametrize("as_json", [True, False], ids=["json", "text"])
def test_the_end_of_a_replay_is_printed_with_its_count_and_hash(
    three_days: Home, tmp_path: Path, as_json: bool
) -> None:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("ALMANAC_")}
    options = ("--replay", "2026-03-29T06:00:00Z", "--speed", "1e6", "--port", "0")
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "application", "serve", *options, "--dir", str(tmp_path)),
            *(["--json"] if as_json else []),
        ],
        cwd=ROOT,
        env={**plain, "ALMANAC_HOME": str(three_days.root), "ALMANAC_STATE": str(tmp_path / "m")},
        stdout=subprocess.PIPE,
        text=True,
    )
    log = change_log(three_days, FIRST, FIRST.replace(day=31))
    assert process.stdout is not None
    try:
        lines = iter(process.stdout.readline, "")
        if as_json:
            assert "base_url" in json.loads(next(lines))
            state = json.loads(next(lines))
            assert state["changes"] == {"known": 2, "total": 2, "sha256": log_hash(log)}
            assert state["ended"]
        else:
            end = next(line for line in lines if line.startswith("The replay ended"))
            assert end == (
                f"The replay ended at 2026-03-31T06:00:00Z: 2 changes, SHA-256 {log_hash(log)}\n"
            )
    finally:
        process.terminate()
        assert process.wait() == 130
