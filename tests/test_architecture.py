"""The layout: which package may import which, and what a file may be."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("almanac", "assets", "catalog", "pipeline", "resources", "warehouse")
# Each part may import itself and what stands behind its name, and nothing else of ours.
ALLOWED = {
    "catalog.contract": set(),
    "catalog.server": {"catalog.contract"},
    "catalog.sandbox": {"catalog.contract", "catalog.server"},
    "warehouse": {"catalog.contract"},
    "almanac": {"warehouse"},
    "resources": {"catalog.contract", "warehouse"},
    "assets": {"catalog.contract", "warehouse", "resources"},
    "pipeline": {
        *("catalog.contract", "catalog.server", "catalog.sandbox"),
        *("warehouse", "resources", "assets"),
    },
}
WITHOUT_DAGSTER = ("catalog.contract", "catalog.server", "catalog.sandbox", "warehouse")
WORLD = ("truth", "life", "edits", "announcements", "coins", "known_coins", "dates", "records")
LINES_MAX = 350


def sources() -> list[Path]:
    found = [path for name in PACKAGES for path in sorted((ROOT / name).rglob("*.py"))]
    assert found
    return found


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def part_of(module: str) -> str | None:
    return next((part for part in ALLOWED if f"{module}.".startswith(f"{part}.")), None)


def imports_of(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize("path", sources(), ids=lambda path: module_of(path))
def test_imports_point_one_way(path: Path) -> None:
    part = part_of(module_of(path))
    for name in imports_of(path):
        other = part_of(name)
        if other is not None and other != part:
            assert part is not None, f"{path} belongs to no part and imports {name}"
            assert other in ALLOWED[part], f"{part} must not import {name}"
        if part in WITHOUT_DAGSTER:
            assert not name.startswith("dagster"), f"{part} must not import Dagster"


@pytest.mark.parametrize("name", WORLD)
def test_the_world_imports_nothing_but_the_sandbox(name: str) -> None:
    """So that the truth is an oracle of its own, and not the server's reading of it."""
    ours = {one for one in imports_of(ROOT / "catalog/sandbox" / f"{name}.py") if part_of(one)}
    allowed = {
        f"catalog.sandbox.{module}"
        for module in (*WORLD, "categories", "collector", "phrases", "titles")
    }
    strange = {one for one in ours if not {one, one.rpartition(".")[0]} & allowed}
    assert strange == set()


def test_only_the_settings_read_the_environment() -> None:
    readers = {
        module_of(path)
        for path in sources()
        if imports_of(path) & {"os.environ", "os.getenv"}
        or "os.environ" in path.read_text()
        or "getenv" in path.read_text()
    }
    assert readers == set()


def test_the_gateway_shares_no_code_with_a_client() -> None:
    for name in ("gateway", "bucket", "usage"):
        names = imports_of(ROOT / "catalog/server" / f"{name}.py")
        assert not [one for one in names if one.startswith("resources")]


@pytest.mark.parametrize("path", sources(), ids=lambda path: module_of(path))
def test_a_file_fits_in_the_head_and_says_what_it_is(path: Path) -> None:
    text = path.read_text()
    assert text.count("\n") <= LINES_MAX
    if path.name != "__main__.py":
        assert ast.get_docstring(ast.parse(text)), "a module begins with what belongs in it"
    assert path.stem != "utils"
