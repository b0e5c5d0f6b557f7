"""The as-of joins of docs/lake.md on 100,000 rows: each engine equals `attach_known`."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.lake.servers import spark_session
from tests.warehouse.iceberg.as_of_joins import (
    count_differences,
    join_in_duckdb,
    join_in_pandas,
    join_in_polars,
    read_queries,
)
from tests.warehouse.iceberg.step_world import StepWorld
from tests.warehouse.iceberg.test_step_parts import list_steps

pytestmark = pytest.mark.lake
ROWS = 100_000
DIALECTS = {
    "DuckDB": "duckdb",
    "Snowflake": "snowflake",
    "ClickHouse": "clickhouse",
    "Spark": "spark",
    "BigQuery": "bigquery",
    "Trino": "trino",
}


class EngineCase:
    """Rows and steps, as tables and as Parquet files, and the columns of `attach_known`."""

    def __init__(self, folder: Path) -> None:
        world = StepWorld(folder / "world.duckdb", 36, events=400)
        self.rows = world.make_rows(ROWS, 36)
        with world.open() as database:
            self.expected = database.attach_known(self.rows)
        self.steps = list_steps(world.file)
        self.bars_file, self.steps_file = folder / "bars.parquet", folder / "steps.parquet"
        pq.write_table(self.rows, self.bars_file)
        pq.write_table(self.steps, self.steps_file)


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> EngineCase:
    return EngineCase(tmp_path_factory.mktemp("engines"))


def test_frames_and_duckdb_equal_attach_known(case: EngineCase) -> None:
    for join in (join_in_duckdb, join_in_pandas):
        assert count_differences(case.expected, join(case.rows, case.steps)) == (0, 0), join
    found = join_in_polars(case.rows, case.steps)
    assert count_differences(case.expected, found, whole_us=True) == (0, 0)


def test_spark_sql_equals_attach_known(case: EngineCase, spark_master: str, tmp_path: Path) -> None:
    options = {
        "spark.sql.session.timeZone": "America/New_York",
        "spark.sql.shuffle.partitions": "4",
    }
    with spark_session(spark_master, **options) as spark:
        spark.read.parquet(str(case.bars_file)).createOrReplaceTempView("bars")
        spark.read.parquet(str(case.steps_file)).createOrReplaceTempView("event_steps")
        spark.sql(read_queries()["Spark"]).write.parquet(str(tmp_path / "found"))
    found = pq.read_table(tmp_path / "found")
    assert count_differences(case.expected, found) == (0, 0)


def test_clickhouse_equals_attach_known(case: EngineCase, tmp_path: Path) -> None:
    chdb = pytest.importorskip("chdb", reason="ClickHouse is not installed: pip install chdb")
    found = tmp_path / "found.parquet"
    query = read_queries()["ClickHouse"]
    for name, file in (("bars", case.bars_file), ("event_steps", case.steps_file)):
        query = query.replace(f"FROM {name}", f"FROM file('{file}', Parquet)")
    query = query.replace("SETTINGS", f"INTO OUTFILE '{found}' FORMAT Parquet SETTINGS")
    chdb.query(query)
    assert count_differences(case.expected, pq.read_table(found)) == (0, 0)


@pytest.mark.parametrize("engine", DIALECTS)
def test_statement_is_of_the_dialect(engine: str) -> None:
    sqlglot = pytest.importorskip("sqlglot", reason="sqlglot is not installed")
    names = {"coin", "ts", "valid_from", "next_event_first_seen_at"}
    for query in (read_queries()[engine], read_queries()["As of a time"]):
        parsed = sqlglot.parse_one(
            query, dialect=DIALECTS[engine], error_level=sqlglot.ErrorLevel.RAISE
        )
        assert not list(parsed.find_all(sqlglot.exp.Command))
    parsed = sqlglot.parse_one(read_queries()[engine], dialect=DIALECTS[engine])
    assert names <= {column.name for column in parsed.find_all(sqlglot.exp.Column)}


def test_steps_of_the_case_are_of_use(case: EngineCase) -> None:
    assert case.expected.num_rows == ROWS
    assert isinstance(case.steps, pa.Table) and len(case.steps) > 1_000
    assert case.expected.column("next_event_id").null_count < ROWS // 2
