"""The layout: direction of imports, size of modules, one place for files, settings and SQL."""

import ast
import re
from collections import Counter
from collections.abc import Iterable
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from almanac.core.statements import statements_in
from warehouse.schema.columns import CONTENT_NAMED

ROOT = Path(__file__).parent.parent
PACKAGES = ("almanac", "application", "assets", "catalog", "pipeline", "resources", "warehouse")
LINES_MAX = 600
# A part imports itself and the parts before it. Packages of `catalog` import the ones before them.
PARTS = ["almanac.core", "catalog.contract", "catalog.server", "catalog.sandbox", "almanac"]
PARTS += ["warehouse", "resources", "assets", "pipeline", "application"]
NO_CATALOG_SERVER = ("almanac", "warehouse", "resources", "assets")
NO_DAGSTER = ("catalog", "almanac", "warehouse")
NO_HTTP = ("almanac", "warehouse")
HTTP = ["aiohttp", "granian", "http", "httpcore", "httpx", "requests", "starlette"]
HTTP += ["urllib.request"]


def is_in(name: str, packages: Iterable[str]) -> bool:
    return any(f"{name}.".startswith(f"{package}.") for package in packages)


def forbidden(module: str, name: str) -> bool:
    """Whether a module must not import a name."""
    part = next((n for n, part in enumerate(PARTS) if is_in(module, [part])), None)
    other = next((n for n, part in enumerate(PARTS) if is_in(name, [part])), None)
    if other is not None and (part is None or other > part):
        return True
    return (
        (is_in(module, ["almanac"]) and is_in(name, ["catalog"]))
        or (is_in(module, NO_CATALOG_SERVER) and is_in(name, PARTS[2:4]))
        or (is_in(module, NO_DAGSTER) and name.startswith("dagster"))
        or (is_in(module, NO_HTTP) and is_in(name, HTTP))
    )


def test_imports_point_one_way() -> None:
    found = [(module_of(path), name) for path in sources() for name in imports_of(path)]
    assert [(module, name) for module, name in found if forbidden(module, name)] == []
    assert forbidden("warehouse.x", "assets.y") and forbidden("resources.x", "catalog.server.y")
    assert forbidden("almanac.core.x", "almanac.y") and forbidden("catalog.server.x", "almanac.y")
    assert not forbidden("catalog.server.x", "almanac.core.y")


def test_the_page_on_architecture_states_what_the_docstring_of_each_part_states() -> None:
    page = (ROOT / "docs/architecture.md").read_text()
    rows = re.findall(r"^\| `([\w/]+)` \| (.+) \|$", page, re.MULTILINE)
    stated = {name.replace("/", "."): contents for name, contents in rows}
    assert sorted(stated) == sorted(PARTS)
    for part, contents in stated.items():
        docstring = ast.get_docstring(
            ast.parse((ROOT / part.replace(".", "/") / "__init__.py").read_text())
        )
        assert docstring is not None
        assert " ".join(docstring.partition("\n\n")[0].split()) == contents, part


@cache
def sources() -> tuple[Path, ...]:
    found = [path for name in PACKAGES for path in sorted((ROOT / name).rglob("*.py"))]
    assert found
    return tuple(found)


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


@cache
def imports_of(path: Path) -> frozenset[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(found)


def module_graph() -> dict[str, set[str]]:
    """The modules that each module imports: at the top, in functions and for types."""
    modules = {module_of(path): path for path in sources()}
    graph: dict[str, set[str]] = {}
    for module, path in modules.items():
        graph[module] = set()
        for name in imports_of(path):
            found = name if name in modules else name.rpartition(".")[0]
            if found in modules and found != module:
                graph[module].add(found)
    return graph


def import_circle(graph: dict[str, set[str]]) -> list[str]:
    """Return the modules of one import circle, or an empty list."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert import_circle(module_graph()) == []


def test_an_import_circle_is_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}
    assert set(import_circle(graph)) == {"a", "b", "c"}


def test_the_world_imports_nothing_of_ours() -> None:
    """So that the truth is independent of the server's code."""
    for path in (ROOT / "catalog/sandbox/world").glob("*.py"):
        ours = {name for name in imports_of(path) if is_in(name, PARTS)}
        others = {name for name in ours if not name.startswith("catalog.sandbox.world.")}
        assert others == set(), path


def test_duckdb_is_opened_in_one_way() -> None:
    openers = {module_of(path) for path in sources() if "duckdb.connect(" in path.read_text()}
    assert openers == {"almanac.core.connections"}


def test_files_are_locked_and_synced_in_one_way() -> None:
    for text in ("import fcntl", "os.fsync("):
        assert {module_of(path) for path in sources() if text in path.read_text()} == {
            "almanac.core.files"
        }


def test_the_files_of_a_home_are_named_in_one_place() -> None:
    for named, module in (
        (r"observed_date=|(changes|events)\.parquet", "warehouse.history.partitions"),
        (r'root / "(checkpoints|parquet|warehouse\.duckdb)', "warehouse.home"),
    ):
        naming = {module_of(path) for path in sources() if re.search(named, path.read_text())}
        assert naming == {module}


def test_only_the_settings_read_the_environment() -> None:
    readers = {
        module_of(path)
        for path in sources()
        if imports_of(path) & {"os.environ", "os.getenv"}
        or "os.environ" in path.read_text()
        or "getenv" in path.read_text()
    }
    assert readers == {"pipeline.settings"}


def test_the_gateway_shares_no_code_with_a_client() -> None:
    for name in ("middleware", "accounts"):
        names = imports_of(ROOT / "catalog/server" / f"{name}.py")
        assert not [imported for imported in names if imported.startswith("resources")]


def test_a_module_has_a_docstring_and_at_most_600_lines() -> None:
    for path in sources():
        text = path.read_text()
        assert text.count("\n") <= LINES_MAX, path
        assert path.name == "__main__.py" or ast.get_docstring(ast.parse(text)), path
        assert path.stem != "utils", path


@pytest.mark.parametrize("packages", [("almanac",), tuple(set(PACKAGES) - {"almanac"})])
def test_names_of_public_classes_are_unique(packages: tuple[str, ...]) -> None:
    """In the package and in the application: its `Coin` is what the interface sends, a row."""
    classes = Counter(
        node.name
        for path in sources()
        if path.relative_to(ROOT).parts[0] in packages
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert [name for name, count in classes.items() if count > 1] == []


def test_each_statement_is_used_by_its_package() -> None:
    """The code names it in full, or builds the name from its beginning; or it is a part of another
    statement, which names it in braces."""
    files = [path for name in PACKAGES for path in (ROOT / name).rglob("*.sql")]
    assert files
    statements = "".join(file.read_text() for file in files)
    for file in files:
        package = file.parent.parent if file.parent.name in ("sql", "views") else file.parent
        code = "".join(path.read_text() for path in package.glob("*.py"))
        begun = re.findall(r'f"(\w+_)\{', code) + re.findall(r'"(\w+_)" \+', code)
        found = statements_in(file.read_text())
        assert found, f"{file} has no statement that is named"
        for name, _ in found:
            is_part = f"{{{name}}}" in statements
            is_named = f'"{name}"' in code or name.startswith(tuple(begun))
            assert is_part or is_named, f"{file}: {name}"


_CONTENT_NAME = re.compile(rf"\b(?:{'|'.join(CONTENT_NAMED)})\b")
_SAME_THRICE = re.compile(r"(?<![\w.@'])([^\n@]{0,99}?@[^\n]{0,99}?),\s+\1,\s+\1")


def columns_by_hand(statement: str) -> str | None:
    """Return where three columns of events stand in one form, a comma between them, or None."""
    code = re.sub(r"--[^\n]*", "", statement)
    # A macro of one value takes the fields that its answer needs, and no other.
    code = re.sub(r"\b_almanac\.\w+\([^()]*\)", "", code)
    found = _SAME_THRICE.search(_CONTENT_NAME.sub("@", code))
    return found and found[0]


def test_no_statement_lists_the_columns_of_events_by_hand() -> None:
    """Except those of views and macros, whose columns warehouse/schema/views.py declares."""
    for file in (ROOT / "warehouse").rglob("*.sql"):
        for name, text in statements_in(file.read_text()):
            if not name.startswith(("view_", "macro_")):
                assert (found := columns_by_hand(text)) is None, (
                    f"{file}, statement {name} lists columns of events by hand: {found!r}, @ is a "
                    "column. Write {each content: @name}, or another group of "
                    "warehouse/schema/columns.py, so that a new field is in the list"
                )


def test_a_list_of_columns_by_hand_is_found_in_any_form() -> None:
    for text in (
        "SELECT event_id, slug, title,\n    description FROM events",
        "SELECT e.slug, e.title, e.coins",
        "SET slug = v.slug, title = v.title, impact = v.impact",
        "(slug VARCHAR, title VARCHAR, source_url VARCHAR)",
        "['created_at', 'updated_at', 'status']",
        """'{"slug": "VARCHAR", "title": "VARCHAR", "date": "VARCHAR"}'""",
        "if(has(x, 'slug'), w.slug, c.slug) AS slug, if(has(x, 'title'), w.title, c.title) "
        "AS title, if(has(x, 'coins'), w.coins, c.coins) AS coins",
    ):
        assert columns_by_hand(text), text
    assert columns_by_hand("SELECT slug, title, symbol, -- slug, title, date\n status") is None
