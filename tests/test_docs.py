"""All paths, modules, commands, settings and tables that pages for contributors name exist."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from almanac.command_line import commands
from pipeline.settings import PREFIX, Settings
from warehouse.sql import statements_in

ROOT = Path(__file__).parent.parent
PRODUCT = ("almanac", "application", "assets", "catalog", "pipeline", "resources", "warehouse")
TOP = "|".join((*PRODUCT, "bench", "docs", "tests", r"\.ci"))
ARCHITECTURE = ROOT / "docs/architecture.md"
GLOSSARY = ROOT / "docs/glossary.md"
DECISIONS = sorted((ROOT / "docs/decisions").glob("*.md"))
PAGES = (ROOT / "CONTRIBUTING.md", ARCHITECTURE, GLOSSARY, *DECISIONS)
LINKED = (
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "bench/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
)

PATH = re.compile(rf"(?<![\w./-])(?:{TOP})/[\w./-]*\w")
MODULE = re.compile(rf"(?<![\w./-])(?:{TOP})(?:\.(?!duckdb\b)[A-Za-z_]\w*)+\b(?!/)")
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]*)(#[^)\s]*)?\)")
CODE = re.compile(r"`([^`\n]+)`")
NAME_IN_FILE = re.compile(r"`([\w./]+\.(?:py|sql))` \(`(\w+)`")
FENCED = re.compile(r"^```[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


each_page = pytest.mark.parametrize("page", PAGES, ids=named)


@cache
def text_of(page: Path) -> str:
    return page.read_text("utf-8")


@cache
def code_in(page: Path) -> tuple[str, ...]:
    """Return the text in backticks and in blocks of code."""
    text = text_of(page)
    return (*CODE.findall(FENCED.sub("", text)), *FENCED.findall(text))


@cache
def makefile_targets() -> frozenset[str]:
    return frozenset(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


@cache
def command_names() -> frozenset[str]:
    """Return the names of commands; those of a group have its name in front."""
    found = set()
    for name, place in commands().items():
        found.add(name)
        found |= {f"{name} {inner}" for inner in getattr(place.load(name), "commands", ())}
    return frozenset(found)


def missing_paths(text: str) -> list[str]:
    without_sample = re.sub(r"\S*[<…*]\S*", "", text)
    return [found for found in PATH.findall(without_sample) if not (ROOT / found).exists()]


def missing_modules(text: str) -> list[str]:
    """Return the dotted names that are neither a module nor a name that a module defines."""
    return [found for found in MODULE.findall(text) if not _is_there(found)]


def _is_there(dotted: str) -> bool:
    path = ROOT / dotted.replace(".", "/")
    if path.is_dir() or path.with_suffix(".py").is_file():
        return True
    module, _, name = dotted.rpartition(".")
    file = (ROOT / module.replace(".", "/")).with_suffix(".py")
    return file.is_file() and name in defined_in(file)


@cache
def defined_in(file: Path) -> frozenset[str]:
    """Return the names that a file defines: those of a module with its methods, or statements."""
    if file.suffix == ".sql":
        return frozenset(name for name, _ in statements_in(file.read_text("utf-8")))
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return frozenset(found)


def table_rows(text: str) -> Iterator[list[str]]:
    for line in text.splitlines():
        if line.startswith("| `") or (line.startswith("| ") and not line.startswith("| ---")):
            yield [cell.strip() for cell in line.strip("| ").split(" | ")]


@each_page
def test_every_path_that_is_named_exists(page: Path) -> None:
    assert missing_paths(text_of(page)) == []


def test_a_path_and_a_module_that_do_not_exist_are_noticed() -> None:
    assert missing_paths("see `warehouse/history/folds.py`, tests/nowhere and docs/x.md.") == [
        *("warehouse/history/folds.py", "tests/nowhere", "docs/x.md")
    ]
    assert missing_modules("`warehouse.history.folds` and warehouse.queries.attach_all") == [
        *("warehouse.history.folds", "warehouse.queries.attach_all")
    ]


@each_page
def test_every_module_that_is_named_exists(page: Path) -> None:
    assert missing_modules(PATH.sub("", text_of(page))) == []


@each_page
def test_every_command_and_make_target_that_is_named_exists(page: Path) -> None:
    for code in code_in(page):
        for target in re.findall(r"(?:^|[\s;&])make (?:PYTHON=\S+ )?([a-z][a-z-]*)", f" {code}"):
            assert target in makefile_targets(), f"make {target}"
        for words in re.findall(r"(?<![\w-])almanac ([a-z]+(?: [a-z]+)?)", code):
            first, _, second = words.partition(" ")
            assert first in command_names(), f"almanac {first}"
            if second and f"{first} " in {name[: len(first) + 1] for name in command_names()}:
                assert words in command_names(), f"almanac {words}"


@each_page
def test_every_setting_that_is_named_exists(page: Path) -> None:
    settings = {PREFIX + name.upper() for name in Settings.model_fields}
    assert set(re.findall(rf"{PREFIX}[A-Z_]+", text_of(page))) - settings == set()


@pytest.mark.parametrize("page", LINKED, ids=named)
def test_every_link_to_a_file_of_ours_leads_somewhere(page: Path) -> None:
    for target, anchor in LINK.findall(text_of(page)):
        if "://" in target:
            continue
        file = (page.parent / target).resolve() if target else page
        assert file.exists(), target
        if anchor:
            assert anchor.removeprefix("#") in anchors_of(file), f"{target}{anchor}"


def anchors_of(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def test_the_table_of_rooms_lists_each_room_once() -> None:
    (section,) = re.findall(r"^## Rooms\n(.*?)^## ", text_of(ARCHITECTURE), re.M | re.S)
    rooms = [named(path.parent) for name in PRODUCT for path in (ROOT / name).rglob("__init__.py")]
    listed = re.findall(r"^\| `([\w/]+)` \|", section, re.MULTILINE)
    assert sorted(listed) == sorted(rooms)


def test_each_walk_names_definitions_of_its_files() -> None:
    walks = text_of(ARCHITECTURE).split("\n### ")
    walks = [walk for walk in walks if re.match(r"[a-h]\. ", walk)]
    assert len(walks) == 8
    for walk in walks:
        for cells in table_rows(walk):
            if cells[0] == "file":
                continue
            (path,) = CODE.findall(cells[0])
            for name in CODE.findall(cells[1]):
                assert name in defined_in(ROOT / path), f"{path}: {name}"


def test_every_term_has_a_sentence_and_they_are_in_order() -> None:
    terms = [*table_rows(text_of(GLOSSARY).partition("## Words not used")[0])][1:]
    names = [term for term, _ in terms]
    assert names == sorted(set(names), key=lambda name: name.replace("-", " "))
    for term, meaning in terms:
        assert meaning.endswith("."), term


def test_decisions_are_numbered_and_have_their_four_parts() -> None:
    for number, page in enumerate(DECISIONS, start=1):
        assert page.name.startswith(f"{number:04}-")
        assert text_of(page).startswith(f"# {number}. ")
        assert re.findall(r"^## (.+)$", text_of(page), re.MULTILINE) == [
            *("Context", "Decision", "Consequences", "Considered")
        ]


BARRED = re.compile(r"`(\w+)`")
KEPT = {"heard_at": "a field of the file service_clock.json"}
"""Names with a barred word that other programs or files rely on."""


def barred_words() -> frozenset[str]:
    rows = table_rows(text_of(GLOSSARY).partition("## Words not used")[2])
    return frozenset(word for row in rows for word in BARRED.findall(row[0]))


def names_in(code: str) -> set[str]:
    """Return the names of classes, functions, parameters, attributes and variables."""
    found = {
        name
        for node in ast.walk(ast.parse(code))
        for field in ("id", "attr", "arg", "name")
        if isinstance(name := getattr(node, field, None), str)
    }
    return {name for name in found if not name.startswith("test_")}


def words_of(name: str) -> set[str]:
    return set(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().split("_"))


def test_no_name_in_the_code_has_a_barred_word() -> None:
    barred = barred_words()
    assert {"told", "one"} <= barred
    for top in (*PRODUCT, "bench", "tests"):
        for path in (ROOT / top).rglob("*.py"):
            for name in names_in(path.read_text()) - KEPT.keys():
                # Beside other words `one` is a plain word, as in `at_least_one`.
                words = {name} if name == "one" else words_of(name) - {"one"}
                assert not words & barred, f"{named(path)}: {name}; see {named(GLOSSARY)}"


def test_a_barred_word_is_found_in_any_form() -> None:
    code = "class _LaneBook:\n    def f(self, told): return [w.sweep_of for one in told]"
    words = set().union(*map(words_of, names_in(code)))
    assert {"lane", "told", "sweep", "one"} <= words


def test_each_name_behind_a_file_is_defined_in_it() -> None:
    found = [pair for page in PAGES for pair in NAME_IN_FILE.findall(text_of(page))]
    assert len(found) >= 3
    for path, name in found:
        assert name in defined_in(ROOT / path), f"{path}: {name}"
