"""All paths, modules, commands, settings and tables that pages for contributors name exist."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from almanac.audit.fields import VERDICTS
from almanac.command_line import list_commands
from almanac.core.statements import statements_in
from pipeline.settings import PREFIX, Settings, make_settings_page
from resources.limits.decision import make_reason_table
from warehouse.schema.views import MACROS

ROOT = Path(__file__).parent.parent
PRODUCT = ("almanac", "application", "assets", "catalog", "pipeline", "resources", "warehouse")
TOP = "|".join((*PRODUCT, "bench", "docs", "tests", r"\.ci"))
ARCHITECTURE = ROOT / "docs/architecture.md"
DECISIONS = ROOT / "docs/decisions.md"
PAGES = (ROOT / "CONTRIBUTING.md", ARCHITECTURE, DECISIONS)
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
    for name, place in list_commands().items():
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


def test_each_name_behind_a_file_is_defined_in_it() -> None:
    found = [pair for page in PAGES for pair in NAME_IN_FILE.findall(text_of(page))]
    assert len(found) >= 3
    for path, name in found:
        assert name in defined_in(ROOT / path), f"{path}: {name}"


def test_the_readme_has_at_most_700_words() -> None:
    assert len(text_of(ROOT / "README.md").split()) <= 700


def test_the_settings_page_equals_its_generated_text() -> None:
    assert text_of(ROOT / "docs/settings.md") == make_settings_page()


def test_the_page_of_operation_has_each_reason_why_a_request_is_not_sent() -> None:
    assert make_reason_table() in text_of(ROOT / "docs/operate.md")


def test_the_page_of_commands_has_the_summary_of_each_command() -> None:
    rows = re.findall(r"^\| `almanac (\w+)` \| (.*) \|$", text_of(ROOT / "docs/commands.md"), re.M)
    assert rows == [(name, place.summary) for name, place in list_commands().items()]


def test_the_page_of_back_tests_has_each_verdict_once_and_five_first() -> None:
    section = text_of(ROOT / "docs/backtests.md").partition("### Verdicts")[2].partition("### ")[0]
    first, others = (
        re.findall(r"^\| `(\w+)` \| (\w+) \| (.+) \|$", part, re.M)
        for part in section.split("The others,")
    )
    declared = [(each.name, each.group, each.meaning) for each in VERDICTS]
    assert len(first) == 5
    assert first == [each for each in declared if each in first]
    assert others == [each for each in declared if each not in first]


def test_the_page_of_sql_names_each_macro() -> None:
    assert [macro.name for macro in MACROS if macro.name not in text_of(ROOT / "docs/sql.md")] == []


def test_the_page_of_errors_has_each_error_of_the_product() -> None:
    bases: dict[str, set[str]] = {}
    for file in (path for top in PRODUCT for path in (ROOT / top).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                bases[node.name] = {ast.unparse(base) for base in node.bases}
    errors = {"AlmanacError"}
    while more := {name for name, of in bases.items() if of & errors} - errors:
        errors |= more
    listed = re.findall(r"^\| `(\w+)` \|", text_of(ROOT / "docs/reference/errors.md"), re.M)
    assert sorted(listed) == sorted(errors - {"AlmanacError"})


def test_decisions_are_numbered_and_say_why_and_what_they_cost() -> None:
    found = re.findall(r"^## (\d+)\. .+?\n(.*?)(?=^## |\Z)", text_of(DECISIONS), re.M | re.S)
    assert [int(number) for number, _ in found] == [*range(1, 10)]
    for _, text in found:
        assert re.findall(r"^- \*\*(.+?)\.\*\*", text, re.M) == ["Why", "Cost", "Would change it"]


def test_every_page_that_the_product_names_exists_with_its_anchor() -> None:
    named_pages = set()
    for top in (*PRODUCT, "deploy", "examples"):
        for file in (ROOT / top).rglob("*.*"):
            if file.suffix == ".pyc" or not file.is_file():
                continue
            text = file.read_text("utf-8", errors="ignore")
            named_pages |= set(re.findall(r"\bdocs/([\w/-]+\.md)#?([\w-]*)", text))
    assert len(named_pages) >= 5
    for page, anchor in named_pages:
        assert (ROOT / "docs" / page).is_file(), page
        assert not anchor or anchor in anchors_of(ROOT / "docs" / page), f"{page}#{anchor}"
