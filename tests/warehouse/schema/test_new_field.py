"""A field that is declared only in `columns.py` is in every table and every rule.

A copy of the product declares four fields and which plans show them, and a fifth that no plan
names. It merges a home whose first days were merged without the fields: that home is rebuilt, since
its tables differ.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from catalog.contract.plans import PLANS
from catalog.contract.records import EVENT_FIELDS
from tests.reading import reading
from tests.warehouse.normalise.catalog_bodies import PLAIN, csv_body, json_body, json_event
from warehouse.history.merge import merge
from warehouse.home import Home
from warehouse.landing.batches import Feed, Pull, Scope
from warehouse.schema.columns import FIELDS

ROOT: Final = Path(__file__).parents[3]
Rows = dict[str, list[list[Any]]]
DECLARED: Final = """\
    EventField("x_venue", "VARCHAR", "Where it takes place.", wire="xVenue"),
    EventField("x_doors_at", INSTANT, "When the doors open.", "UTC", wire="xDoorsAt"),
    EventField("x_is_online", "BOOLEAN", "Whether it can be seen from afar.", wire="xIsOnline"),
    EventField("x_seats", "VARCHAR", "How many have a seat.", wire="xSeats", change=None),
    EventField("x_city", "VARCHAR", "Where that is.", wire="xCity"),
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
MERGE: Final = """
import json, sys
from pathlib import Path
from warehouse.history.merge import merge
from warehouse.history.verify import verify
from warehouse.home import Home
from almanac.reading.attached_file import connected
from warehouse.schema.dictionary import markdown

home = Home(Path(sys.argv[1]))
merge(home)
with connected(home.warehouse) as connection:
    rows = {name: connection.execute(sql).fetchall() for name, sql in json.load(sys.stdin).items()}
rows["wrong"] = [wrong for found in verify(home) for wrong in found.wrong]
rows["dictionary"] = [line for line in markdown().splitlines() if "`x_venue`" in line]
print(json.dumps(rows))
"""
QUERIES: Final = {
    "versions": "SELECT event_id, change_kinds, changed_fields, x_venue, x_doors_at::VARCHAR, "
    "x_is_online, x_seats, 'x_venue' IN unknown_fields FROM event_versions ORDER BY ALL",
    "events": "SELECT event_id, x_venue, x_seats, extra FROM events ORDER BY event_id",
    "then": "SELECT event_id, x_venue FROM events_as_of('2026-03-03 12:00') ORDER BY event_id",
    "on every plan": "SELECT event_id, x_city, 'x_city' IN unknown_fields FROM events ORDER BY ALL",
    "rejects": "SELECT reason FROM rejects",
    "columns": "SELECT table_name, comment FROM duckdb_columns() WHERE column_name = 'x_venue' "
    "AND database_name = current_database() AND schema_name = 'main' ORDER BY table_name",
}
NEW: Final = {
    "xVenue": "Lisbon",
    "xDoorsAt": "2026-10-08T18:00:00Z",
    "xIsOnline": "false",
    "xSeats": "900",
    "xCity": "Faro",
}
A, B, C = ({"id": name, **NEW} for name in "abc")
MOVED: Final[dict[str, Any]] = {**A, "xVenue": "Porto", "xIsOnline": True}
DAYS: Final[tuple[tuple[str, list[dict[str, Any]]], ...]] = (
    ("elite", [A, B]),
    ("elite", [{**A, "xVenue": "Porto"}, B]),
    # A plan that hides the fields; a record without them, one with a wrong value.
    ("standard", [A, C]),
    ("elite", [MOVED, {"id": "d"}, {**B, "id": "e", "xDoorsAt": "at seven"}]),
    ("elite", [C, {**MOVED, "xSeats": "1"}]),
)


def land(home: Home, day: int) -> None:
    """Land an export on the first day, and lists on the others."""
    plan, rows = DAYS[day]
    feed: Feed = "events" if day else "export"
    at = datetime(2026, 3, 1, 6, tzinfo=UTC) + timedelta(days=day)
    pull = Pull(
        feed=feed,
        scope=Scope(),
        plan=plan,
        source="s",
        observed_at=at,
        content_at=at - timedelta(minutes=1),
        landed_at=at,
        requests=1,
    )
    exported = csv_body([PLAIN | row for row in rows], columns=[*PLAIN, *NEW])
    body = json_body([{**json_event(), **row} for row in rows]) if day else exported
    home.landing.land(pull, [(body, None)])
    home.rebuild_stamp()


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Rows:
    """The data of a home that a product with the fields published."""
    tree, home = tmp_path_factory.mktemp("declared"), Home(tmp_path_factory.mktemp("home"))
    for package in ("catalog", "warehouse"):
        # With the bytecode, which is that of the files that stay as they are.
        shutil.copytree(ROOT / package, tree / package)
    for name, (old, new) in LINES.items():
        text = (tree / name).read_text()
        assert text.count(old) == 1, f"{name} has changed: say here how a field is declared in it"
        (tree / name).write_text(text.replace(old, new))
    land(home, 0)
    land(home, 1)
    merge(home)
    with reading(home) as connection:
        extra = connection.execute("SELECT extra::VARCHAR FROM events ORDER BY event_id").fetchall()
    assert [json.loads(text)["xVenue"] for (text,) in extra] == ["Porto", "Lisbon"]
    for day in (2, 3, 4):
        land(home, day)
    done = subprocess.run(
        [sys.executable, "-c", MERGE, str(home.root)],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(tree), str(ROOT)))},
        input=json.dumps(QUERIES),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_a_new_field_is_read_compared_and_rejected_as_others(published: Rows) -> None:
    doors = "2026-10-08 18:00:00+00"
    lisbon = ["Lisbon", doors, False, "900", False]
    unknown = [None, None, None, None, True]
    *known, revealed, first_d = published["versions"]
    assert known == [
        ["a", ["revealed"], [], *lisbon],
        ["a", ["revised"], ["x_is_online"], "Porto", doors, True, "900", False],
        ["a", ["revised"], ["x_venue"], "Porto", *lisbon[1:]],
        ["b", ["revealed"], [], *lisbon],
        ["c", ["revealed"], [], *unknown],
    ]
    assert first_d == ["d", ["revealed"], [], *unknown]
    assert (revealed[:2], revealed[3:]) == (["c", ["revealed"]], lisbon)
    assert {"x_venue", "x_doors_at", "x_is_online"} <= {*revealed[2]}
    # `x_seats` is not compared: its change is kept, and makes no version.
    assert published["events"] == [
        ["a", "Porto", "1", None],
        ["b", "Lisbon", "900", None],
        ["c", "Lisbon", "900", None],
        ["d", None, None, None],
    ]
    assert published["on every plan"] == [
        *(["a", "Faro", False], ["b", "Faro", False], ["c", "Faro", False]),
        ["d", None, True],
    ]
    assert published["then"] == [["a", "Porto"], ["b", "Lisbon"], ["c", None]]
    assert published["rejects"] == [
        ["xDoorsAt: expected an instant of 1900 to 2200, got 'at seven'"]
    ]
    assert published["wrong"] == []


def test_the_file_and_the_dictionary_describe_a_new_field(published: Rows) -> None:
    meaning = "Where it takes place."
    tables = ("event_claims", "event_versions", "events")
    assert published["columns"] == [[table, meaning] for table in tables]
    described, shared = published["dictionary"]
    assert str(described) == f"`x_venue` | VARCHAR | {meaning}"
    assert str(shared).startswith("Shared columns: ")


def test_a_field_of_another_type_needs_statements_of_its_own() -> None:
    """Texts, booleans and times are read by declaration; lists and numbers have own rules."""
    declared = ("VARCHAR", "BOOLEAN", "TIMESTAMP WITH TIME ZONE")
    own = {field.name for field in FIELDS if field.type not in declared}
    assert own == {"categories", "coins", "impact"}


FILES: Final = {
    "catalog/contract/plans.py": "wire",
    "catalog/server/catalog_store.py": "name",
    "catalog/server/store.sql": "name",
    "catalog/sandbox/world/announcements.py": "name",
    "catalog/sandbox/history.sql": "name",
    "tests/history/model/observations.py": "name",
    "tests/sandbox/true_world.py": "name",
    "tests/warehouse/normalise/catalog_bodies.py": "wire",
}
"""The form in which a file of the recipe names a field of the interface."""


def test_each_file_of_the_recipe_names_every_field_of_the_interface() -> None:
    _, _, rest = (ROOT / "CONTRIBUTING.md").read_text().partition("### A field of an event")
    recipe = rest.partition("###")[0]
    declared = {field.wire: field for field in FIELDS}
    undeclared = {*EVENT_FIELDS} - {"id"} - declared.keys()
    assert not undeclared, f"edit warehouse/schema/columns.py: it lacks {undeclared}"
    for file, form in FILES.items():
        text = (ROOT / file).read_text()
        names = [getattr(declared[wire], form) for wire in EVENT_FIELDS if wire in declared]
        lacking = [name for name in names if not re.search(rf"\b{name}\b", text)]
        assert not lacking, f"edit {file}: it lacks {', '.join(lacking)}"
        assert file in recipe or file.rpartition("/")[0] in recipe, f"CONTRIBUTING.md lacks {file}"


def test_the_plans_show_fields_that_are_declared() -> None:
    wires = {field.wire for field in FIELDS}
    for plan in PLANS.values():
        assert plan.event_fields - {"id"} <= wires, plan.name
