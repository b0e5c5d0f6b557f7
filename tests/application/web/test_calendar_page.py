"""Each command of docs/calendar.md runs with the real program."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import icalendar
import pytest

from application.web.site import WebSite
from tests.application.mirror.filled_home import mirroring
from tests.deploy.page import almanac_commands, blocks, blocks_of, parse, run
from tests.test_cli import ROOT, environment
from warehouse.home import Home

PAGE = ROOT / "docs" / "calendar.md"


@pytest.fixture(scope="module")
def folder(filled_home: Home, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that looks like a clone with a home of several days."""
    folder = tmp_path_factory.mktemp("clone")
    shutil.copytree(filled_home.root, folder / "data")
    Home(folder / "data").claim("sandbox:1")
    tools = folder / ".venv" / "bin"
    tools.mkdir(parents=True)
    (tools / "almanac").write_text(f'#!/bin/sh\nexec {sys.executable} -m application "$@"\n')
    (tools / "almanac").chmod(0o755)
    return folder


def test_each_address_of_the_page_is_a_calendar(filled_home: Home, folder: Path) -> None:
    with mirroring(filled_home, folder / "mirror", site=WebSite) as (mirror, _):
        for block in blocks_of("calendar", PAGE):
            for line in block.commands:
                run(line.replace("http://127.0.0.1:8651", mirror.base_url), folder)
    counts = {}
    for name in ("all", "bitcoin", "as-known-then"):
        content = (folder / f"{name}.ics").read_bytes()
        counts[name] = len(icalendar.Calendar.from_ical(content).walk("VEVENT"))
    assert counts["all"] > counts["as-known-then"] > 0
    assert counts["all"] > counts["bitcoin"] > 0


def test_each_export_of_the_page_writes_a_file(folder: Path) -> None:
    for block in blocks_of("export", PAGE):
        for line in block.commands:
            printed = run(line, folder)
            file = folder / shlex.split(line)[-1]
            assert icalendar.Calendar.from_ical(file.read_bytes())
            if "--json" in line:
                assert json.loads(printed)["events"] > 0


def test_key_of_the_page_is_made(folder: Path) -> None:
    (block,) = blocks_of("keys", PAGE)
    assert re.search(r"alm2_\w+", run(block.text, folder))


def test_python_of_the_page_runs(folder: Path) -> None:
    (block,) = blocks_of("calendar python", PAGE)
    done = subprocess.run(
        [sys.executable, "-c", block.text],
        cwd=folder,
        env=environment(folder / "data"),
        capture_output=True,
        text=True,
        check=True,
    )
    assert re.fullmatch(r"\d+ False \d+\n", done.stdout)


def test_every_block_of_commands_says_where_it_runs_and_its_commands_exist() -> None:
    marks = {block.mark for block in blocks(PAGE) if block.language == "sh"}
    ran = {"calendar", "export", "keys"}
    parsed = {"calendar start", "public start", "cron"}
    assert marks == ran | parsed
    for mark in parsed:
        for block in blocks_of(mark, PAGE):
            for line in block.commands:
                for words in almanac_commands(line):
                    parse(words)
