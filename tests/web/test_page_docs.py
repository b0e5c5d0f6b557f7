"""Each command of docs/page.md runs with the real program."""

import shlex
from pathlib import Path

from pipeline.cli.serve import DEFAULT_PORT
from pipeline.web.site import WebSite
from tests.deploy.page import almanac_commands, blocks, blocks_of, parse
from tests.mirror.filled_home import mirroring
from tests.mirror.test_page import run
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


def test_each_command_of_the_page_has_valid_arguments() -> None:
    assert [block.mark for block in blocks(PAGE)] == ["page start", "page", "page key"]
    for block in (*blocks_of("page start", PAGE), *blocks_of("page key", PAGE)):
        for line in block.commands:
            for words in almanac_commands(line):
                parse(words)
