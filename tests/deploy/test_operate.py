"""docs/operate.md agrees with the program; commands for other machines name what exists."""

import re
import subprocess
from pathlib import Path

import pytest
import typer
import yaml

from almanac.command_line import list_commands
from catalog.contract.constants import ACCEPTED_FORMS
from pipeline.automation.jobs import AT_NIGHT, EXPORT_IS_OUT_AT
from pipeline.settings import describe_settings, read_settings
from tests.deploy.page import DEPLOY, PAGE, almanac_commands, block_with, blocks, parse
from tests.hangs import HANGS_AFTER_S
from tests.test_cli import ROOT

NAMES = ("operate", "dagster", "serve", "scale", "sandbox", "history")
PAGES = [ROOT / "docs" / f"{name}.md" for name in NAMES]
ELSEWHERE = re.compile("not run: (?:it )?needs (root and systemd|podman|a cluster)")
"""Blocks for systemd, podman and a cluster: their arguments are checked here."""
PROGRAMS = {
    *("almanac", "cp", "git", "install", "journalctl", "make", "mkdir", "nginx", "rm", "systemctl"),
    *("useradd", "kubectl", "ln", "podman", "podman-compose"),
    *(f"/opt/almanac/releases/{release}/.venv/bin/python" for release in ("0.1.0", "0.2.0")),
}
TEXT = PAGE.read_text("utf-8")


STUB = '#!/bin/sh\necho "$(basename "$0") $*" >> "$CALLS"\n'


@pytest.mark.parametrize("make_fails", [True, False])
def test_an_upgrade_whose_download_fails_leaves_the_old_release_running(
    tmp_path: Path, make_fails: bool
) -> None:
    upgrade = block_with("systemctl stop")
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


def test_the_shares_of_the_page_are_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for line in block_with("ALMANAC_BURST").commands:
        name, _, value = line.partition("=")
        monkeypatch.setenv(name, value)
    settings = read_settings()
    assert (settings.rate_per_s, settings.burst, settings.monthly_quota) == (25, 50, 1_500_000)


def test_the_times_of_the_page_are_those_of_the_schedules() -> None:
    text = (ROOT / "docs" / "dagster.md").read_text("utf-8")
    assert f"| {EXPORT_IS_OUT_AT:%H:%M} | the job `daily`" in text
    minute, hour, *_ = AT_NIGHT.split()
    assert f"| {hour:0>2}:{minute:0>2} | the job `prune`" in text


def section(title: str) -> str:
    return TEXT.partition(f"\n### {title}\n")[2].partition("\n##")[0]


def test_every_status_of_the_receiver_is_on_the_page() -> None:
    code = (ROOT / "application" / "receiver.py").read_text("utf-8")
    given = {*re.findall(r"Refused\((\d+)", code), *re.findall(r"status_code=(\d+)", code)}
    assert {"204", "401", "413", "503"} <= given
    rows = [row.split(" | ")[0] for row in section("Statuses").splitlines() if "|" in row]
    listed = {status for row in rows for status in re.findall(r"\d+", row)}
    of_the_frameworks = {"200", "404", "405"}
    assert given | of_the_frameworks == listed - {"502", "504"}, "502 is of the proxy"


def test_every_form_of_a_signature_is_on_the_page() -> None:
    rows = re.findall(r"^\| `([^`]+)` \|", section("Signatures"), re.MULTILINE)
    assert set(rows) == set(ACCEPTED_FORMS)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_setting_of_the_page_exists(page: Path) -> None:
    settings = {name for name, _, _ in describe_settings()}
    assert set(re.findall(r"\bALMANAC_[A-Z_]+\b", page.read_text("utf-8"))) <= settings


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_for_another_machine_name_what_exists(page: Path) -> None:
    for block in blocks(page):
        for line in block.commands if ELSEWHERE.search(block.mark) else ():
            check(line)


def check(line: str) -> None:
    """Check program, files, units and `almanac` of a command."""
    program, first, *_ = line.split()
    assert program in PROGRAMS, line
    assert program != "almanac" or first in list_commands(), line
    for path in re.findall(r"(?<![\w/])deploy/[\w./*-]*", line):
        assert list(ROOT.glob(path.rstrip("/"))), f"{line}: {path}"
    for unit in re.findall(r"almanac-[\w-]+\.(?:service|timer)\b", line):
        assert (DEPLOY / "systemd" / unit).exists(), f"{line}: {unit}"
    if started := re.search(r"podman-compose.* up -d(.*)", line):
        services = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))["services"]
        assert services.keys() >= {*started[1].split()}, line
    for words in almanac_commands(line.replace("--rm mirror", "almanac")):
        parse(words)


def test_a_command_that_does_not_exist_is_noticed() -> None:
    for line in (
        "almanac status --nothing",
        "systemctl start almanac-nothing.service",
        "cp deploy/nothing /etc",
        "podman exec almanac almanac daemon --nothing",
        "podman-compose run --rm mirror status --nothing",
        "podman-compose -f deploy/compose.yaml up -d almanac",
        "almanac nothing",
        "nothing here",
    ):
        with pytest.raises((AssertionError, Exception)):
            check(line)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_in_the_text_of_the_page_exist(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
    for code in re.findall(r"`([^`\n]+)`", text):
        assert not code.startswith("almanac ") or code.split()[1] in list_commands(), code
        for words in almanac_commands(code):
            try:
                parse(words)
            except typer.BadParameter as error:
                assert "Missing" in str(error) or "…" in code, (code, error)
