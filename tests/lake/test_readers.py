"""100 as-of questions: each reader of the Iceberg tables answers as `warehouse.duckdb`."""

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any, Final
from urllib.parse import urlsplit

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from almanac.lake import Lake, LakePublication, open_lake
from tests.lake.servers import spark_session
from tests.warehouse.iceberg.as_of_joins import read_queries
from warehouse.home import Home
from warehouse.iceberg.lake_tables import EVENT_VERSIONS
from warehouse.iceberg.publication_commit import commit_publication
from warehouse.iceberg_place import IcebergPlace

pytestmark = pytest.mark.lake
QUESTIONS: Final = 100
COLUMNS: Final = [column.name for column in EVENT_VERSIONS.columns]
KINDS: Final = {
    column.name: column.type.replace("JSON", "VARCHAR") for column in EVENT_VERSIONS.columns
}
EXPECTED: Final = """
    SELECT q.number, v.* EXCLUDE (known_to, first_seen_at) REPLACE (extra::VARCHAR AS extra)
    FROM questions AS q
    JOIN published.event_versions AS v
        ON v.known_from <= q.ts AND (v.known_to IS NULL OR v.known_to > q.ts)
        AND (q.event_id IS NULL OR q.event_id = v.event_id)
"""
SPARK: Final = """
    SELECT * EXCEPT (place)
    FROM (
        SELECT q.number, v.*, row_number() OVER (
            PARTITION BY q.number, v.event_id ORDER BY v.version DESC
        ) AS place
        FROM questions AS q
        JOIN event_versions AS v
            ON v.known_from <= q.ts AND (q.event_id IS NULL OR q.event_id = v.event_id)
    )
    WHERE place = 1
"""


class LakeCase:
    """Iceberg tables of a home, a pinned publication, and questions with their answers.

    A question has a time; every second one also an event.
    """

    def __init__(self, home: Home, folder: Path) -> None:
        place = IcebergPlace(f"sqlite:///{folder}/catalog.sqlite", f"file://{folder}")
        report = commit_publication(home, place)
        assert report is not None and not report.why_failed
        self.lake: Lake = open_lake(place.catalog)
        self.publication: LakePublication = self.lake.publication()
        self._connection = duckdb.connect()
        self._connection.execute("SET TimeZone = 'UTC'")
        self._connection.execute(f"ATTACH '{home.warehouse}' AS published (READ_ONLY)")
        self.questions = self._make_questions()
        self._connection.register("questions", self.questions)
        self.expected = self._connection.sql(EXPECTED).to_arrow_table()
        assert self.expected.num_rows > QUESTIONS

    def _make_questions(self) -> pa.Table:
        rows = self._connection.execute(
            "SELECT event_id, known_from::TIMESTAMP FROM published.event_versions ORDER BY ALL"
        ).fetchall()
        source = Random(36)
        first = min(row[1] for row in rows)
        span = (max(row[1] for row in rows) - first) // timedelta(microseconds=1)
        chosen = []
        for number in range(QUESTIONS):
            event_id, edge = source.choice(rows)
            at = first + timedelta(microseconds=source.randrange(span))
            at = source.choice([at, edge, edge - timedelta(microseconds=1)])
            named = event_id if number % 2 else None
            chosen.append({"number": number, "ts": at.replace(tzinfo=UTC), "event_id": named})
        types = {"number": pa.int64(), "ts": pa.timestamp("us", "UTC"), "event_id": pa.string()}
        return pa.Table.from_pylist(chosen, pa.schema(types))

    @property
    def snapshot_id(self) -> int:
        return self.publication.snapshots[EVENT_VERSIONS.name]

    @property
    def files(self) -> list[str]:
        """The paths of the data files of the pinned snapshot."""
        scan = self.lake.scan(EVENT_VERSIONS.name, publication=self.publication)
        return [urlsplit(task.file.file_path).path for task in scan.plan_files()]

    def asked(self) -> Iterator[tuple[int, datetime, str | None]]:
        for row in self.questions.to_pylist():
            yield row["number"], row["ts"], row["event_id"]

    def count_differences(self, found: pa.Table) -> tuple[int, int]:
        """Return the rows that only the warehouse has, and only the reader."""
        self._connection.register("expected", self.expected)
        self._connection.register("found", found)
        listed = ", ".join(f"{name}::{kind} AS {name}" for name, kind in KINDS.items())
        sides = [f"SELECT number::BIGINT, {listed} FROM {side}" for side in ("expected", "found")]
        missing, added = (
            self._connection.execute(f"SELECT count(*) FROM ({a} EXCEPT ALL {b})").fetchall()[0][0]
            for a, b in (sides, sides[::-1])
        )
        return int(missing), int(added)

    def close(self) -> None:
        self._connection.close()


@pytest.fixture(scope="module")
def case(filled_home: Home, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LakeCase]:
    with closing(LakeCase(filled_home, tmp_path_factory.mktemp("iceberg"))) as found:
        yield found


def numbered(number: int, rows: pa.Table) -> pa.Table:
    return rows.select(COLUMNS).append_column("number", pa.repeat(number, len(rows)))


def test_pyiceberg_equals_the_warehouse(case: LakeCase) -> None:
    found = [
        numbered(
            number,
            case.lake.read(
                EVENT_VERSIONS.name,
                as_of=ts,
                publication=case.publication,
                row_filter=None if event_id is None else f"event_id = '{event_id}'",
            ),
        )
        for number, ts, event_id in case.asked()
    ]
    assert case.count_differences(pa.concat_tables(found)) == (0, 0)


def test_polars_equals_the_warehouse(case: LakeCase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    table = case.lake.table(EVENT_VERSIONS.name)
    found = []
    for number, ts, event_id in case.asked():
        scan = pl.scan_iceberg(table, snapshot_id=case.snapshot_id)
        known = scan.filter(pl.col("known_from") <= ts)
        if event_id is not None:
            known = known.filter(pl.col("event_id") == event_id)
        newest = pl.col("version") == pl.col("version").max().over("event_id")
        found.append(numbered(number, known.filter(newest).collect().to_arrow()))
    assert case.count_differences(pa.concat_tables(found)) == (0, 0)


def test_duckdb_over_the_list_of_files_equals_the_warehouse(case: LakeCase) -> None:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'America/New_York'")
        files = connection.read_parquet(case.files, hive_partitioning=False)
        assert answer_in_duckdb(case, connection, files) == (0, 0)


def test_iceberg_extension_of_duckdb_equals_the_warehouse(case: LakeCase) -> None:
    with duckdb.connect() as connection:
        connection.execute("SET autoinstall_known_extensions = false")
        try:
            connection.execute("LOAD iceberg")
        except duckdb.Error as error:
            pytest.skip(f"DuckDB's extension iceberg is not installed: {error}")
        metadata = case.lake.table(EVENT_VERSIONS.name).metadata_location
        rows = connection.sql(
            f"FROM iceberg_scan('{metadata}', snapshot_from_id = {case.snapshot_id})"
        )
        assert answer_in_duckdb(case, connection, rows) == (0, 0)


def answer_in_duckdb(
    case: LakeCase, connection: duckdb.DuckDBPyConnection, rows: duckdb.DuckDBPyRelation
) -> tuple[int, int]:
    rows.create_view("stored")
    found = []
    for number, ts, event_id in case.asked():
        source = "stored" if event_id is None else f"(FROM stored WHERE event_id = '{event_id}')"
        found.append(numbered(number, connection.sql(query_of(ts, source)).to_arrow_table()))
    return case.count_differences(pa.concat_tables(found))


def query_of(ts: datetime, source: str) -> str:
    """Return the statement of docs/lake.md for a time."""
    query = read_queries()["As of a time"]
    assert "2026-03-01 00:00:00 UTC" in query
    query = query.replace("TIMESTAMP '2026-03-01 00:00:00 UTC'", f"TIMESTAMPTZ '{ts.isoformat()}'")
    return query.replace("FROM event_versions", f"FROM {source}")


def test_clickhouse_equals_the_warehouse(
    case: LakeCase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")  # It reads tables below the working folder only.
    chdb = pytest.importorskip("chdb", reason="ClickHouse is not installed: pip install chdb")
    asked, found = tmp_path / "questions.parquet", tmp_path / "found.parquet"
    pq.write_table(case.questions, asked)
    folder = urlsplit(case.lake.table(EVENT_VERSIONS.name).location()).path
    chdb.query(
        f"""
        SELECT * EXCEPT (place) FROM (
            SELECT q.number, v.*, row_number() OVER (
                PARTITION BY q.number, v.event_id ORDER BY v.version DESC
            ) AS place
            FROM file('{asked}', Parquet) AS q CROSS JOIN icebergLocal('{folder}') AS v
            WHERE v.known_from <= q.ts AND (q.event_id IS NULL OR q.event_id = v.event_id)
        ) WHERE place = 1
        INTO OUTFILE '{found}' FORMAT Parquet
        SETTINGS iceberg_snapshot_id = {case.snapshot_id}
        """
    )
    names: dict[str, Any] = {name: name.removeprefix("v.") for name in pq.read_schema(found).names}
    rows = pq.read_table(found).rename_columns(names)
    assert case.count_differences(rows) == (0, 0)


def test_spark_equals_the_warehouse(case: LakeCase, spark_master: str, tmp_path: Path) -> None:
    asked, found = tmp_path / "questions.parquet", tmp_path / "found"
    pq.write_table(case.questions, asked)
    options = {
        "spark.sql.session.timeZone": "America/New_York",
        "spark.sql.shuffle.partitions": "4",
    }
    with spark_session(spark_master, **options) as spark:
        spark.read.parquet(str(asked)).createOrReplaceTempView("questions")
        spark.read.parquet(*case.files).createOrReplaceTempView("event_versions")
        spark.sql(SPARK).write.parquet(str(found))
    assert case.count_differences(pq.read_table(found)) == (0, 0)
