"""A field that is declared only in `columns.py` is in every table and every rule.

The tree of the test is the product with a few lines more: the declarations, and which plans show
the fields, as the interface would state it. A home that was merged without the fields is rebuilt by
the next merge, since its tables differ. The names begin with x, since no field of the service does.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from catalog.contract.plans import PLANS
from tests.warehouse.schema import new_field_story as story
from warehouse.history.merge import merge
from warehouse.home import Home
from warehouse.schema.columns import FIELDS, NAMES
from warehouse.schema.tables import TABLES
from warehouse.schema.views import MACROS, VIEWS

ROOT: Final = Path(__file__).parents[3]
DECLARED: Final = """\
    EventField("x_venue", "VARCHAR", "Where it takes place.", wire="xVenue"),
    EventField("x_doors_at", INSTANT, "When the doors open.", "UTC", wire="xDoorsAt"),
    EventField("x_is_online", "BOOLEAN", "Whether it can be seen from afar.", wire="xIsOnline"),
    EventField("x_seats", "VARCHAR", "How many have a seat.", wire="xSeats", change=None),
"""
LINES: Final = {
    "warehouse/schema/columns.py": (
        ')\n"""The fields of an event;',
        f'{DECLARED})\n"""The fields of an event;',
    ),
    "catalog/contract/plans.py": (
        "_PRO_FIELDS = _STANDARD_FIELDS | {",
        '_PRO_FIELDS = _STANDARD_FIELDS | {*("xVenue", "xDoorsAt", "xIsOnline", "xSeats")} | {',
    ),
}
DOORS: Final = "2026-10-08 18:00:00+00"


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the product that declares the fields."""
    tree = tmp_path_factory.mktemp("declared")
    for package in ("catalog", "warehouse"):
        # With the bytecode, which is that of the files that stay as they are.
        shutil.copytree(ROOT / package, tree / package)
    for name, (old, new) in LINES.items():
        text = (tree / name).read_text()
        assert text.count(old) == 1, f"{name} has changed: say here how a field is declared in it"
        (tree / name).write_text(text.replace(old, new))
    return tree


def run(tree: Path, home: Path, *steps: str) -> Any:
    """Run steps of the story with the product of a tree; return what the last one reports."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.warehouse.schema.new_field_story", str(home), *steps],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(tree), str(ROOT)))},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def reported(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The published data of a home whose first two days were folded without the fields."""
    home = tmp_path_factory.mktemp("home")
    for day in (0, 1):
        story.land(Home(home), day)
        merge(Home(home))
    extra = story.extra_of(Home(home))
    assert [json.loads(text)["xVenue"] for _, text in sorted(extra)] == ["Porto", "Lisbon"]
    report, wrong = run(tree, home, "2", "3", "4", "report", "verify")
    assert wrong == []
    return dict(report)


def versions(reported: dict[str, Any], event_id: str) -> list[list[Any]]:
    return [row[1:] for row in reported["versions"] if row[0] == event_id]


def test_a_change_of_a_new_field_is_a_version_of_kind_revised(reported: dict[str, Any]) -> None:
    first, second, third = versions(reported, "a")
    assert first == [1, ["revealed"], [], "Lisbon", DOORS, False, "900", False]
    assert second == [2, ["revised"], ["x_venue"], "Porto", DOORS, False, "900", False]
    doors = "2026-10-08 19:00:00+00"
    assert third[:3] == [3, ["revised"], ["x_doors_at", "x_is_online"]]
    assert third[3:6] == ["Porto", doors, True]


def test_a_new_field_is_read_from_an_export_and_from_a_list(reported: dict[str, Any]) -> None:
    assert versions(reported, "b") == [[1, ["revealed"], [], "Lisbon", DOORS, False, "900", False]]
    assert reported["extra"] == []


def test_a_new_field_is_unknown_if_a_plan_hides_it_or_a_record_lacks_it(
    reported: dict[str, Any],
) -> None:
    assert versions(reported, "c")[0][3:] == [None, None, None, None, True]
    assert versions(reported, "d") == [[1, ["revealed"], [], None, None, None, None, True]]


def test_a_new_field_is_revealed_by_a_plan_that_shows_it(reported: dict[str, Any]) -> None:
    revealed = versions(reported, "c")[1]
    assert revealed[1] == ["revealed"]
    assert {"x_venue", "x_doors_at", "x_is_online"} <= set(revealed[2])
    assert revealed[3:] == ["Lisbon", DOORS, False, "900", False]


def test_a_plan_that_hides_a_new_field_keeps_its_known_value(reported: dict[str, Any]) -> None:
    shown = {row[0]: row[1:2] + row[3:] for row in reported["events"]}
    assert shown == {
        "a": ["Porto", False],
        "b": ["Lisbon", False],
        "c": ["Lisbon", False],
        "d": [None, True],
    }


def test_a_field_that_is_not_compared_is_kept_and_makes_no_version(
    reported: dict[str, Any],
) -> None:
    assert {row[0]: row[2] for row in reported["events"]}["a"] == "1"
    assert [row[0] for row in versions(reported, "a")] == [1, 2, 3]


def test_events_as_of_shows_a_new_field_as_it_was_known(reported: dict[str, Any]) -> None:
    assert reported["first_day"] == [["a", "Lisbon"], ["b", "Lisbon"]]
    assert reported["third_day"] == [["a", "Porto"], ["b", "Lisbon"], ["c", None]]


def test_a_value_of_another_type_is_rejected_with_its_name_on_the_wire(
    reported: dict[str, Any],
) -> None:
    ((reason, raw),) = reported["rejects"]
    assert reason == "xDoorsAt: expected an instant of 1900 to 2200, got 'at seven'"
    raw = json.loads(raw)
    assert (raw["xVenue"], raw["xDoorsAt"], raw["xIsOnline"]) == ("Lisbon", "at seven", "perhaps")


def test_the_file_and_the_dictionary_describe_a_new_field(reported: dict[str, Any]) -> None:
    meaning = "Where it takes place."
    tables = ("event_claims", "event_versions", "events")
    assert reported["columns"] == [[table, meaning] for table in tables]
    showing = [table for table in (*TABLES, *MACROS, *VIEWS) if {*NAMES} <= {*table.names}]
    assert {"events", "events_as_of"} < {table.name for table in showing}
    described, *listed = reported["dictionary"]
    assert described == f"| `x_venue` | VARCHAR |  | {meaning} |"
    assert len(listed) == len(showing)
    assert all(line.startswith("Shared columns: `event_id`") for line in listed)


def test_a_field_of_another_type_needs_statements_of_its_own() -> None:
    """Texts, booleans and instants are read by declaration; lists and numbers have own rules."""
    read = {field.name for field in FIELDS if field.type in ("VARCHAR", "BOOLEAN")}
    read |= {field.name for field in FIELDS if field.type == "TIMESTAMP WITH TIME ZONE"}
    assert set(NAMES) - read == {"categories", "coins", "impact"}


def test_the_plans_show_fields_that_are_declared() -> None:
    wires = {field.wire for field in FIELDS}
    for plan in PLANS.values():
        assert plan.event_fields - {"id"} <= wires, plan.name
