"""The docs site: a strict build without a network, and its pages, reference and search."""

import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any, Final

import pytest

import almanac
from almanac.database import Database
from tests.hangs import HANGS_AFTER_S
from tests.test_docs import anchors_of

ROOT: Final = Path(__file__).parents[2]
RESOURCE: Final = re.compile(
    r"<(?:link|script|img|iframe|source)\b[^>]*?\b(?:href|src)=\"?([^\s\">]+)"
)
IDS: Final = re.compile(r"\bid=\"?([^\s\">]+)")
SECTIONS: Final = re.compile(
    r">\s*(?:Args|Returns|Raises|Attributes|Example):\s*<(?!/span)|^Args:", re.M
)

pytest.importorskip("material", reason="make tools installs it")


def build(root: Path, site: Path) -> "subprocess.CompletedProcess[str]":
    """Build the site of a checkout, with a proxy that refuses every connection."""
    proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), "http://127.0.0.1:9")
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", site],
        cwd=root,
        env=os.environ | proxies | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER_S,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("docs") / "site"
    built = build(ROOT, folder)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


def pages(site: Path) -> Iterator[tuple[Path, str]]:
    for page in sorted(site.rglob("*.html")):
        yield page, page.read_text("utf-8")


def test_no_page_loads_a_resource_of_another_host(site: Path) -> None:
    found = [
        f"{page.name}: {address}"
        for page, text in pages(site)
        for address in RESOURCE.findall(text)
        if re.match("(?:https?:)?//", address)
    ]
    assert found == []
    assert sum(1 for _ in pages(site)) >= 25
    assert not list(site.rglob("*mermaid*"))
    # The theme loads Mermaid from another host for this class.
    assert not any(re.search(r"class=\"?mermaid\b", text) for _, text in pages(site))


def test_every_page_of_docs_is_on_the_site(site: Path) -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        made = site / page.relative_to(ROOT / "docs").with_suffix(".html")
        assert made.is_file(), page.name


def test_anchors_are_those_of_the_repository(site: Path) -> None:
    for name in ("commands", "sql", "operate", "data-dictionary"):
        ids = {unescape(found) for found in IDS.findall((site / f"{name}.html").read_text("utf-8"))}
        assert anchors_of(ROOT / f"docs/{name}.md") <= ids


def test_the_reference_has_every_public_name_and_every_question(site: Path) -> None:
    reference = "".join(text for page, text in pages(site) if page.parent.name == "reference")
    ids = {found.rpartition(".")[2] for found in IDS.findall(reference)}
    own = {"reader"}  # For other parts of the package.
    questions = {name for name, _ in inspect.getmembers(Database) if not name.startswith("_")}
    assert (questions | set(almanac.__all__)) - ids == own


def test_sections_of_docstrings_are_lists(site: Path) -> None:
    for page, text in pages(site):
        if page.parent.name == "reference":
            assert not SECTIONS.search(text), page.name
            assert page.name != "database.html" or text.count("Parameters:") >= 7


def test_every_public_name_of_the_package_can_be_imported() -> None:
    assert [name for name in almanac.__all__ if not hasattr(almanac, name)] == []


def test_search_finds_the_pages_without_a_server(site: Path) -> None:
    script = (site / "search/search_index.js").read_text("utf-8")
    entries: list[dict[str, Any]] = json.loads(script.partition("=")[2])["docs"]
    locations = {entry["location"].partition("#")[0] for entry in entries}
    assert {"sql.html", "backtests.html", "repository/CONTRIBUTING.html"} <= locations


@pytest.mark.long
@pytest.mark.parametrize(
    ("fault", "named"),
    [
        ("[no such page](missing.md)", "missing.md"),
        ("[no such part](sql.md#missing)", "#missing"),
        ("[no such file](../deploy/missing)", "deploy/missing"),
    ],
    ids=["page", "anchor", "file"],
)
def test_a_link_that_leads_nowhere_fails_the_build(tmp_path: Path, fault: str, named: str) -> None:
    root = tmp_path / "checkout"
    leave_out = shutil.ignore_patterns(".*", "build", "data", "node_modules", "__pycache__")
    shutil.copytree(ROOT, root, ignore=leave_out)
    shutil.copytree(ROOT / ".ci", root / ".ci")
    page = root / "docs/python.md"
    page.write_text(f"{page.read_text('utf-8')}\n{fault}\n", "utf-8")
    built = build(root, tmp_path / "site")
    assert built.returncode == 1
    assert named in built.stderr
