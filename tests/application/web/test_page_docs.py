"""Each command of docs/page.md runs with the real program."""

import shlex
from pathlib import Path

import pytest

from application.cli.serve import DEFAULT_PORT
from application.web.site import WebSite
from tests.application.mirror.filled_home import mirroring
from tests.deploy.page import almanac_commands, blocks, blocks_of, parse, run
from tests.test_cli import ROOT
from warehouse.home import Home

PAGE = ROOT / "docs" / "page.md"


def test_each_address_of_the_page_is_a_page(filled_home: Home, tmp_path: Path) -> None:
    with mirroring(filled_home, tmp_path, site=WebSite) as (mirror, client):
        lines = [line for block in blocks_of("page", PAGE) for line in block.commands]
        assert lines
        for line in lines:
            path = shlex.split(line)[-1].removeprefix(f"http://127.0.0.1:{DEFAULT_PORT}")
            assert client.get(path).status_code == 200, line
        last = lines[-1].replace(f"http://127.0.0.1:{DEFAULT_PORT}", mirror.base_url)
        text = " ".join(run(last, tmp_path).split())
        assert ">bitcoin<" in text[text.index("<h1") : text.index("</h1>")].lower()


@pytest.mark.parametrize(
    ("page", "marks"),
    [
        ("page.md", ("page start", "page", "page key")),
        (
            "mirror.md",
            (
                *("mirror start", "mirror", "replay start", "replay", "keys"),
                *("server", "containers", "kubernetes"),
            ),
        ),
    ],
)
def test_every_block_of_commands_says_where_it_runs_and_its_commands_exist(
    page: str, marks: tuple[str, ...]
) -> None:
    found = [block for block in blocks(ROOT / "docs" / page) if block.language == "sh"]
    assert {block.mark for block in found} == set(marks)
    for block in found:
        for line in block.commands if "curl" not in block.text else ():
            for words in almanac_commands(line):
                parse(words)
