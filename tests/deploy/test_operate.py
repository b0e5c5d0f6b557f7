"""Every command of docs/operate.md runs, or is checked where it needs another machine."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from almanac.command_line import commands
from pipeline.automation.jobs import EXPORT_IS_OUT_AT
from pipeline.automation.prune import AT_NIGHT
from pipeline.settings import read_settings
from tests.deploy.page import (
    DEPLOY,
    PAGE,
    PUSH_PAGE,
    almanac_commands,
    blocks,
    blocks_of,
    parse,
)
from tests.hangs import HANGS_AFTER_S
from tests.test_cli import ROOT, environment
from tests.warehouse.landed_days import history, land
from warehouse.history.merge import merge
from warehouse.home import Home

CHECKED = ("server", "containers", "kubernetes", "upgrade")
"""Blocks for systemd, podman and a cluster: their words are checked here, and run by hand."""
PROGRAMS = {
    *("almanac", "cp", "git", "install", "journalctl", "make", "mkdir", "nginx", "rm", "systemctl"),
    *("useradd", "kubectl", "ln", "podman", "podman-compose"),
    *(f"/opt/almanac/releases/{release}/.venv/bin/python" for release in ("0.1.0", "0.2.0")),
}
PLACES = {"/var/lib/almanac": "lib", "/var/backups/almanac": "backups", "/srv/almanac": "srv"}


class Machine:
    """A folder that stands for a server: `almanac` on its path, a home, the deployment files."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.home = Home(root / "lib" / "home")
        programs = root / "programs"
        programs.mkdir()
        (programs / "almanac").write_text(f'#!/bin/sh\nexec {sys.executable} -m application "$@"\n')
        (programs / "almanac").chmod(0o755)
        (root / "deploy").symlink_to(DEPLOY)
        (root / "lib" / "state").mkdir(parents=True)
        self._environment = {
            **environment(self.home.root),
            "ALMANAC_STATE": str(root / "lib" / "state"),
            "PATH": f"{programs}:{os.environ['PATH']}",
        }

    def run(self, text: str, *, codes: tuple[int, ...] = (0,)) -> str:
        for place, here in PLACES.items():
            text = text.replace(place, str(self.root / here))
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", text],
            cwd=self.root,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=HANGS_AFTER_S,
        )
        assert done.returncode in codes, f"{text}\n{done.stdout}{done.stderr}"
        return done.stdout


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A machine with a home of two days, in which an event moved."""
    before = os.umask(0o077)
    machine = Machine(tmp_path_factory.mktemp("machine"))
    machine.home.claim("s")
    for day in (0, 1):
        land(machine.home, day, id="a", title=f"title {day}")
    merge(machine.home)
    yield machine
    os.umask(before)


STUB = '#!/bin/sh\necho "$(basename "$0") $*" >> "$CALLS"\n'


@pytest.mark.parametrize("make_fails", [True, False])
def test_an_upgrade_whose_download_fails_leaves_the_old_release_running(
    tmp_path: Path, make_fails: bool
) -> None:
    (upgrade,) = blocks_of("upgrade")
    programs, root, calls = tmp_path / "programs", tmp_path / "opt", tmp_path / "calls"
    programs.mkdir()
    calls.touch()
    for name in ("almanac", "cp", "make", "systemctl"):
        (programs / name).write_text(STUB + ("exit 2\n" if make_fails and name == "make" else ""))
        (programs / name).chmod(0o755)
    (root / "releases" / "0.1.0").mkdir(parents=True)
    (root / "current").symlink_to(root / "releases" / "0.1.0")
    python = root / "releases" / "0.2.0" / ".venv" / "bin" / "python"
    text = upgrade.text.replace("/opt/almanac", str(root)).replace(f"{python} -m", "true")
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", text.replace("git archive HEAD", "tar c README.md")],
        cwd=ROOT,
        env={"PATH": f"{programs}:/usr/bin:/bin", "CALLS": str(calls)},
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER_S,
    )
    ran = calls.read_text()
    assert (done.returncode, "systemctl" in ran) == ((2, False) if make_fails else (0, True))
    release = "0.1.0" if make_fails else "0.2.0"
    assert (root / "current").resolve() == root / "releases" / release
    assert (root / "current" / "README.md").exists() != make_fails
    if not make_fails:
        assert (
            ran.index("systemctl stop") < ran.index("almanac merge") < ran.index("systemctl start")
        )


def test_every_block_of_commands_says_where_it_runs() -> None:
    marks = {block.mark for block in blocks() if block.language == "sh"}
    assert marks == {
        *CHECKED,
        *("home", "daily", "warned", "fails without a daemon", "restore", "move"),
    }


def test_the_commands_for_a_home_run(machine: Machine) -> None:
    output = machine.run("".join(block.text for block in blocks_of("home")))
    assert "2 new batches and 2 new bodies" in output
    assert re.search(r"^2\t2026-03-30 06:00:00", output, re.MULTILINE), "versions and the newest"
    for block in blocks_of("warned"):
        # The home was last pulled in March.
        machine.run(block.text, codes=(1,))
    for block in blocks_of("fails without a daemon"):
        assert '"well":false' in machine.run(block.text, codes=(1,))


def test_a_home_that_is_restored_by_the_page_has_the_same_history(machine: Machine) -> None:
    (backup,) = [block for block in blocks_of("home") if "deploy/backup" in block.text]
    machine.run(backup.text)
    expected = history(machine.home)
    lost = machine.root / "lost"
    machine.home.root.rename(lost)
    (restore,) = blocks_of("restore")
    output = machine.run(restore.text)
    assert history(machine.home) == expected
    assert re.search(r"^2\t2026-03-30 06:00:00", output, re.MULTILINE)


def test_a_home_that_is_moved_by_the_page_verifies(machine: Machine) -> None:
    (move,) = blocks_of("move")
    (machine.root / "backups").mkdir(exist_ok=True)
    machine.run(move.text)


def test_the_shares_of_the_page_are_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    (share,) = blocks_of("share")
    for line in share.commands:
        name, _, value = line.partition("=")
        monkeypatch.setenv(name, value)
    settings = read_settings()
    assert (settings.rate_per_s, settings.burst, settings.monthly_quota) == (25, 50, 1_500_000)


def test_the_times_of_the_page_are_those_of_the_schedules() -> None:
    text = PAGE.read_text("utf-8")
    assert f"| {EXPORT_IS_OUT_AT:%H:%M} | the job `daily`" in text
    minute, hour, *_ = AT_NIGHT.split()
    assert f"| {hour:0>2}:{minute:0>2} | the job `prune`" in text
    timer = (DEPLOY / "systemd" / "almanac-backup.timer").read_text("utf-8")
    (at,) = re.findall(r"OnCalendar=\*-\*-\* (\d\d:\d\d):00 UTC", timer)
    assert f"| {at}, `almanac-backup.timer` |" in text


@pytest.mark.parametrize("page", [PAGE, PUSH_PAGE], ids=["operate", "push"])
@pytest.mark.parametrize("mark", CHECKED)
def test_commands_for_another_machine_name_what_exists(mark: str, page: Path) -> None:
    for block in blocks_of(mark, page):
        for line in block.commands:
            check(line)


def check(line: str) -> None:
    """Check program, files, units and `almanac` of a command."""
    program, first, *_ = line.split()
    assert program in PROGRAMS, line
    assert program != "almanac" or first in commands(), line
    for path in re.findall(r"(?<![\w/])deploy/[\w./*-]*", line):
        assert list(ROOT.glob(path.rstrip("/"))), f"{line}: {path}"
    for unit in re.findall(r"almanac-[\w-]+\.(?:service|timer)\b", line):
        assert (DEPLOY / "systemd" / unit).exists(), f"{line}: {unit}"
    for words in almanac_commands(line):
        parse(words)


def test_a_command_that_does_not_exist_is_noticed() -> None:
    for line in (
        "almanac status --nothing",
        "systemctl start almanac-nothing.service",
        "cp deploy/nothing /etc",
        "podman exec almanac almanac daemon --nothing",
        "almanac nothing",
        "nothing here",
    ):
        with pytest.raises((AssertionError, Exception)):
            check(line)


@pytest.mark.parametrize("page", [PAGE, PUSH_PAGE], ids=["operate", "push"])
def test_commands_in_the_text_of_the_page_exist(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
    for code in re.findall(r"`([^`\n]+)`", text):
        assert not code.startswith("almanac ") or code.split()[1] in commands(), code
        for words in almanac_commands(code):
            if "…" not in code:
                parse(words)
