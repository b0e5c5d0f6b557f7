"""Every table, view and macro is published as declared, column by column."""

import re

import duckdb
import pytest

from tests.warehouse.publish.small_lake import Op, Plan, SmallLake
from warehouse.queries import connect
from warehouse.schema.columns import AS_OF, CONTENT, GROUPS, NAMES
from warehouse.schema.tables import EVENT_VERSIONS, EVENTS, INTERNAL, TABLES, Table
from warehouse.schema.views import AS_OF_MACROS, INTERNAL_MACROS, MACROS, VIEWS
from warehouse.sql import Statements


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> duckdb.DuckDBPyConnection:
    lake = SmallLake(tmp_path_factory.mktemp("home"))
    lake.set_plans(
        [
            Plan((Op(0, seed=1), Op(1, seed=2)), coins=2, rejects=1),
            Plan((Op(0, "cancel", 3), Op(1, "miss"))),
        ]
    )
    lake.publish()
    return connect(lake.warehouse)


def described(connection: duckdb.DuckDBPyConnection, source: str) -> list[tuple[str, str]]:
    relation = connection.sql(f"FROM {source}")
    return [(name, str(kind)) for name, kind in zip(relation.columns, relation.types, strict=True)]


@pytest.mark.parametrize("table", [*TABLES, *INTERNAL, *VIEWS], ids=lambda table: table.name)
def test_columns_are_published_as_declared(
    connection: duckdb.DuckDBPyConnection, table: Table
) -> None:
    assert described(connection, table.qualified) == [
        (column.name, column.type) for column in table.columns
    ]


@pytest.mark.parametrize("macro", MACROS, ids=lambda macro: macro.name)
def test_the_columns_of_a_macro_are_as_declared(
    connection: duckdb.DuckDBPyConnection, macro: Table
) -> None:
    at = "'2026-03-01 06:00'"
    values = {"ts": at, "lead": "INTERVAL 1 DAY", "wanted": "'coin'", "cohort_from": at}
    values["horizon"] = "INTERVAL 1 DAY"
    given = ", ".join(values[name] for name in re.findall(r"[(,] ?(\w+)(?! :=)\b", macro.call))
    assert described(connection, f"{macro.name}({given})") == [
        (column.name, column.type) for column in macro.columns
    ]


def test_every_published_object_is_declared(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    sql = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'main'"
    published = {name for (name,) in connection.sql(sql).fetchall()}
    assert published == {table.name for table in (*TABLES, *VIEWS)}
    sql = (
        "SELECT DISTINCT schema_name, function_name FROM duckdb_functions() "
        "WHERE database_name = current_database()"
    )
    macros = {".".join(names) for names in connection.sql(sql).fetchall()}
    assert macros == {*(macro.qualified for macro in MACROS), *INTERNAL_MACROS, *AS_OF_MACROS}


def test_show_tables_lists_no_internal_table(connection: duckdb.DuckDBPyConnection) -> None:
    listed = {name for (name,) in connection.sql("SHOW TABLES").fetchall()}
    assert listed == {table.name for table in (*TABLES, *VIEWS)}


@pytest.mark.parametrize("table", [*TABLES, *INTERNAL, *VIEWS], ids=lambda table: table.name)
def test_the_file_has_a_comment_for_each_column(
    connection: duckdb.DuckDBPyConnection, table: Table
) -> None:
    sql = (
        "SELECT column_name, comment FROM duckdb_columns() "
        "WHERE database_name = current_database() AND table_name = $name"
    )
    types = dict(connection.execute(sql, {"name": table.name}).fetchall())
    assert set(types) == set(table.names)
    for column in table.columns:
        assert types[column.name].startswith(column.meaning)


@pytest.mark.parametrize(
    "table", [table for table in TABLES if table.key], ids=lambda table: table.name
)
def test_a_key_names_one_row(connection: duckdb.DuckDBPyConnection, table: Table) -> None:
    key = ", ".join(table.key)
    sql = f"SELECT count(*), count(DISTINCT ({key})) FROM {table.name}"
    rows, keys = connection.sql(sql).fetchall()[0]
    assert rows == keys > 0


def test_events_have_the_fields_of_the_catalog_in_order() -> None:
    assert tuple(column.name for column in CONTENT) == (*NAMES, "status", "cancelled_at")
    names = [name for name in EVENTS.names if name in EVENT_VERSIONS.names]
    assert [name for name in names if name in NAMES] == list(NAMES)


def test_events_as_of_has_the_columns_of_events_except_those_every_observation_changes() -> None:
    touched = {"last_seen_at", "missing_since", "content_at"}
    expected = [column for column in EVENTS.columns if column.name not in touched]
    assert list(AS_OF) == expected


@pytest.mark.parametrize("table", [*TABLES, *VIEWS, *MACROS], ids=lambda table: table.name)
def test_every_column_has_a_meaning_and_a_unique_name(table: Table) -> None:
    assert len(set(table.names)) == len(table.names)
    assert set(table.key) <= set(table.names)
    for column in table.columns:
        assert column.meaning.endswith("."), column.name
        assert column.unit or column.type not in ("DOUBLE", "BIGINT", "TIMESTAMP WITH TIME ZONE"), (
            column.name
        )


def test_statements_give_their_grain_and_the_effect_of_a_second_run() -> None:
    for package in ("warehouse.publish", "warehouse.schema"):
        for name, statement in Statements(package, GROUPS).texts.items():
            head = [line for line in statement.splitlines() if line.startswith("--")]
            text = " ".join(line.removeprefix("-- ") for line in head)
            for word in ("Grain: ", "Parameters: "):
                assert word in text, name
            assert "Run twice: " in text or "Read twice: " in text, name
