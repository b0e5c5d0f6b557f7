"""The layout: allowed imports between rooms, sizes of rooms and modules, places of SQL."""

import ast
import re
from collections import Counter
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from almanac.reading.named_sql import statements_in
from warehouse.schema.columns import CONTENT_NAMED

ROOT = Path(__file__).parent.parent
PACKAGES = ("almanac", "assets", "catalog", "pipeline", "resources", "warehouse")
# Each part may import itself and the parts listed for it, and nothing else of ours.
ALLOWED = {
    "catalog.contract": set(),
    "catalog.server": {"catalog.contract"},
    "catalog.sandbox": {"catalog.contract", "catalog.server"},
    "almanac": set(),
    "warehouse": {"almanac", "catalog.contract"},
    "resources": {"almanac", "catalog.contract", "warehouse"},
    "assets": {"almanac", "catalog.contract", "warehouse", "resources"},
    "pipeline": {
        *("catalog.contract", "catalog.server", "catalog.sandbox"),
        *("almanac", "warehouse", "resources", "assets"),
    },
}
# The floors of a part, the ground first. A module or room imports only from floors below its own,
# and nothing from its own floor.
FLOORS = {
    "almanac": (
        "change_digest errors forms",
        "charts reading",
        "user_files",
        "console instants results",
        "frames reader streams",
        "coins",
        "events next_events",
        "event_steps",
        "audit digest history_replay joins study",
        "database",
        "command_line spark",
        "commands",
        "calendar mcp",
    ),
    "catalog.contract": (
        "bodies constants token_bucket",
        "plans signatures",
        "records",
        "errors",
        "parameters",
        "openapi",
    ),
    "catalog.server": (
        "accounts catalog_store cursors docs_page hosting responses statements",
        "body_limit request_guard sql_store",
        "control_path gating middleware",
        "routes webhooks",
        "app state_dir",
    ),
    "catalog.sandbox": (
        "faults sandbox_clock world",
        "control history",
        "sandbox",
        "pytest_plugin",
    ),
    "warehouse": (
        "bounds clock errors making_limits phases",
        "sql",
        "codecs",
        "files schema",
        "landing",
        "home normalise queries",
        "batch_problems iceberg",
        "history",
    ),
    "resources": (
        "answers redaction scopes service_address service_clock",
        "errors",
        "waits",
        "limits",
        "request_log",
        "http",
        "ingest",
        "inbox session",
        "backfill",
    ),
    "assets": (
        "feed_day layout",
        "iceberg metadata table_columns",
        "landed polled",
        "calendar",
        "changes",
        "published",
    ),
    "pipeline": (
        "console mirror",
        "instance settings",
        "home_location",
        "secrecy session",
        "polls receiver",
        "health",
        "web",
        "report",
        "automation",
        "build",
        "daily_run definitions",
        "cli",
        "__main__",
    ),
}
WITHOUT_DAGSTER = ("almanac", "catalog.contract", "catalog.server", "catalog.sandbox", "warehouse")
WITHOUT_HTTP = ("almanac", "warehouse")
HTTP = (
    "aiohttp",
    "granian",
    "http.",
    "httpcore",
    "httpx",
    "requests",
    "starlette",
    "urllib.request",
)
LINES_MAX = 600


@cache
def sources() -> tuple[Path, ...]:
    found = [path for name in PACKAGES for path in sorted((ROOT / name).rglob("*.py"))]
    assert found
    return tuple(found)


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def part_of(module: str) -> str | None:
    return next((part for part in ALLOWED if f"{module}.".startswith(f"{part}.")), None)


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


@pytest.mark.parametrize("path", sources(), ids=module_of)
def test_imports_point_one_way(path: Path) -> None:
    part = part_of(module_of(path))
    for name in imports_of(path):
        other = part_of(name)
        if other is not None and other != part:
            assert part is not None, f"{path} belongs to no part and imports {name}"
            assert other in ALLOWED[part], f"{part} must not import {name}"
        if part in WITHOUT_DAGSTER:
            assert not name.startswith("dagster"), f"{part} must not import Dagster"
        if part in WITHOUT_HTTP:
            assert not f"{name}.".startswith(HTTP), f"{part} must not import {name}"


@pytest.mark.parametrize("part", FLOORS)
def test_imports_go_down_the_floors_of_a_part(part: str) -> None:
    floor_of = {room: n for n, rooms in enumerate(FLOORS[part]) for room in rooms.split()}
    rooms = {room_in(part, module_of(path)) for path in sources()} - {None}
    assert rooms == set(floor_of), "each module and room of a part has its floor"
    for path in sources():
        room = room_in(part, module_of(path))
        if room is None:
            continue
        for name in imports_of(path):
            other = room_in(part, name)
            if other in floor_of and other != room:
                assert floor_of[other] < floor_of[room], f"{module_of(path)} imports {name}"


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


def room_in(part: str, module: str) -> str | None:
    """Return the module or room directly below a part that contains a module, None for the part."""
    below = module.removeprefix(f"{part}.")
    return None if below == module else below.partition(".")[0]


def test_the_world_imports_nothing_of_ours() -> None:
    """So that the truth is independent of the server's code."""
    for path in (ROOT / "catalog/sandbox/world").glob("*.py"):
        ours = {name for name in imports_of(path) if part_of(name)}
        others = {name for name in ours if not name.startswith("catalog.sandbox.world.")}
        assert others == set(), path


def test_duckdb_is_opened_in_one_way() -> None:
    openers = {module_of(path) for path in sources() if "duckdb.connect(" in path.read_text()}
    # The sandbox makes its tables in memory, and may not import the warehouse's reader.
    assert openers == {"almanac.reading.connections", "catalog.sandbox.history"}


def test_the_files_of_a_home_are_named_in_one_place() -> None:
    for named, module in (
        (r"(observed_date|event_month)=|(changes|events)\.parquet", "warehouse.history.partitions"),
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


@pytest.mark.parametrize("path", sources(), ids=module_of)
def test_a_module_has_a_docstring_and_at_most_600_lines(path: Path) -> None:
    text = path.read_text()
    assert text.count("\n") <= LINES_MAX
    if path.name != "__main__.py":
        assert ast.get_docstring(ast.parse(text)), "a module begins with a docstring"
    assert path.stem != "utils"


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


def test_each_statement_is_used_by_the_room_it_stands_in() -> None:
    """The code names it in full, or builds the name from its beginning; or it is a part of another
    statement, which names it in braces."""
    files = [path for name in PACKAGES for path in (ROOT / name).rglob("*.sql")]
    assert files
    for file in files:
        room = file.parent.parent if file.parent.name in ("sql", "views") else file.parent
        code = "".join(path.read_text() for path in room.glob("*.py"))
        begun = re.findall(r'f"(\w+_)\{', code) + re.findall(r'"(\w+_)" \+', code)
        found = statements_in(file.read_text())
        assert found, f"{file} has no statement that is named"
        for name, _ in found:
            is_part = f"{{{name}}}" in file.read_text()
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
