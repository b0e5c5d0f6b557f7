"""The locks: hashed, without a host, of one mind, and enough for what they are for."""

import ast
import re
import sys
import tomllib
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any, Final

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT: Final = Path(__file__).parents[2]
RUNTIME: Final = "requirements.lock"
SETUP: Final = "locks/setup.lock"
TESTS: Final = "locks/dev.lock"
LAKE: Final = "locks/lake.lock"
BROWSER: Final = "locks/browser.lock"
DOCS: Final = "locks/docs.lock"
SCALE: Final = "locks/scale.lock"
PACKAGES: Final = (
    "almanac",
    "application",
    "assets",
    "catalog",
    "pipeline",
    "resources",
    "warehouse",
)
OPTIONAL: Final = frozenset(
    {
        *("dask", "matplotlib", "polars", "psycopg", "pyiceberg", "pyspark"),
        *("pytest", "ray", "scipy"),
    }
)
"""Imported in the function that needs it, which says so if it is missing, or run by it."""


@cache
def pinned(lock: str) -> dict[str, frozenset[str]]:
    """Return the hashes of each pin, by its text: name, version and marker."""
    joined = (ROOT / lock).read_text().replace("\\\n", " ")
    found: dict[str, frozenset[str]] = {}
    for line in joined.splitlines():
        if line and not line.lstrip().startswith("#"):
            pin, *hashes = re.split(r"\s+--hash=", line.strip())
            found[pin] = frozenset(hashes)
    return found


@cache
def versions(lock: str) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for pin in pinned(lock):
        requirement = Requirement(pin)
        found.setdefault(canonicalize_name(requirement.name), set()).add(
            str(requirement.specifier).removeprefix("==")
        )
    return found


@cache
def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def asked_in(group: str) -> list[Requirement]:
    """Return what a group of dependencies asks for; with it the groups that it includes."""
    found: list[Requirement] = []
    for entry in project()["dependency-groups"][group]:
        if isinstance(entry, str):
            found.append(Requirement(entry))
        else:
            found += asked_in(entry["include-group"])
    return found


@pytest.mark.parametrize("lock", [RUNTIME, SETUP, TESTS, LAKE, SCALE, BROWSER, DOCS])
def test_each_pin_has_hashes_and_no_line_names_a_host(lock: str) -> None:
    assert pinned(lock)
    for pin, hashes in pinned(lock).items():
        assert re.fullmatch(r"[\w.-]+(\[[\w,]+\])?==[\w.+!]+( ; .+)?", pin), pin
        assert hashes, pin
        assert all(re.fullmatch("sha256:[0-9a-f]{64}", value) for value in hashes), pin
    assert "://" not in (ROOT / lock).read_text()


@pytest.mark.parametrize("lock", [RUNTIME, SETUP])
def test_the_tests_run_with_the_versions_that_the_application_runs_with(lock: str) -> None:
    for pin, hashes in pinned(lock).items():
        name = Requirement(pin).name
        same = [other for other in pinned(TESTS) if Requirement(other).name == name]
        assert same, f"{pin} of {lock} is not in {TESTS}; make lock"
        assert versions(lock)[canonicalize_name(name)] <= versions(TESTS)[canonicalize_name(name)]
        assert hashes in [pinned(TESTS)[other] for other in same], pin


@pytest.mark.parametrize(
    ("lock", "groups"),
    [
        *((RUNTIME, ["application"]), (SETUP, ["setup"]), (TESTS, ["dev", "bench"])),
        *((LAKE, ["lake"]), (SCALE, ["application", "scale"])),
        *((BROWSER, ["browser"]), (DOCS, ["docs"])),
    ],
)
def test_a_lock_has_what_the_project_asks_for(lock: str, groups: list[str]) -> None:
    asked = [wanted for group in groups for wanted in asked_in(group)]
    if lock != SETUP:
        asked += [Requirement(text) for text in project()["project"]["dependencies"]]
    for wanted in asked:
        found = versions(lock).get(canonicalize_name(wanted.name), set())
        assert found, f"{lock} lacks {wanted}; make lock"
        assert all(wanted.specifier.contains(version) for version in found), wanted


def test_what_only_tests_and_benchmarks_need_is_not_in_the_lock_of_the_application() -> None:
    only = {canonicalize_name(wanted.name) for wanted in asked_in("dev")}
    only -= {canonicalize_name(wanted.name) for wanted in asked_in("application")}
    assert only.isdisjoint(versions(RUNTIME))
    assert {"datasette", "dlt", "polars", "scipy"}.isdisjoint(versions(RUNTIME))
    assert {"psycopg", "pyiceberg"}.isdisjoint(versions(RUNTIME))
    assert {"moto", "pyspark", "ray"}.isdisjoint(versions(TESTS))


def test_the_lake_is_tested_with_the_versions_of_the_other_locks() -> None:
    for name, found in versions(LAKE).items():
        assert found <= versions(TESTS).get(name, found), f"{name}; make lock"


def test_the_image_for_scale_has_the_application_as_it_is_and_nothing_of_the_tests() -> None:
    assert versions(RUNTIME).items() <= versions(SCALE).items(), "make lock"
    assert all(found <= versions(LAKE).get(name, found) for name, found in versions(SCALE).items())
    assert {"psycopg", "pyiceberg", "sqlalchemy"} <= versions(SCALE).keys()
    assert {"dask", "moto", "pyspark", "pytest", "ray"}.isdisjoint(versions(SCALE))


def test_the_application_imports_only_what_its_lock_has() -> None:
    found: dict[str, Path] = {}
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                names = []
                if isinstance(node, ast.Import):
                    names = [alias.name for alias in node.names]
                elif isinstance(node, ast.ImportFrom) and not node.level:
                    names = [node.module or ""]
                found |= {name.partition(".")[0]: path for name in names}
    outside = found.keys() - {*PACKAGES, *sys.stdlib_module_names, *OPTIONAL}
    assert "dagster" in outside
    of_module = packages_distributions()
    for name in sorted(outside):
        distributions = {canonicalize_name(each) for each in of_module.get(name, [name])}
        assert distributions & versions(RUNTIME).keys(), f"{found[name]} imports {name}"


def test_package_and_application_have_the_same_version() -> None:
    application = tomllib.loads((ROOT / "application/pyproject.toml").read_text())
    assert application["project"]["version"] == project()["project"]["version"]


def test_readme_names_the_packages_of_event_study_and_polars() -> None:
    _, told = (ROOT / "README.md").read_text().split(".venv/bin/pip install ", 1)
    extras = project()["project"]["optional-dependencies"]
    needed = {Requirement(text).name for name in ("study", "polars") for text in extras[name]}
    assert needed <= {*told.partition("`")[0].split()}
