"""Rows that are judged in batches: the same answer as at once, from readers and large files."""

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from almanac.audit.audit import audit
from almanac.audit.findings import RowStore
from almanac.audit.report import Audit
from almanac.audit.row_events import as_text
from almanac.audit.user_rows import read_signals
from almanac.command_line import main
from almanac.database import Database
from almanac.errors import InvalidArgument
from almanac.reading.temporary_files import own_folder
from almanac.results import Result
from tests.almanac.audit.watched import at, open_watched

SCHEMA = pa.schema(
    {
        "event_id": pa.string(),
        "coin": pa.dictionary(pa.int32(), pa.string()),
        "decided_at": pa.timestamp("us", "UTC"),
        "date": pa.timestamp("us", "UTC"),
        "impact": pa.float64(),
        "status": pa.string(),
        "title": pa.null(),
        "price": pa.float64(),
    }
)
ROW = st.fixed_dictionaries(
    {
        "event_id": st.sampled_from(["moved", "scored", "off", "found", "nothing", None]),
        "coin": st.sampled_from(["bitcoin", "BTC", "SUN", "no such coin", None]),
        "decided_at": st.sampled_from([at(1), at(2), at(5), at(6), None]),
        "date": st.sampled_from([at(20, 14), at(24), at(27), None]),
        "impact": st.sampled_from([5.0, 8.25, 1.0, None]),
        "status": st.sampled_from(["scheduled", "cancelled", None]),
        "price": st.just(1.0),
    }
)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("batches") / "warehouse.duckdb"


@pytest.fixture(scope="module")
def db(home: Path) -> Iterator[Database]:
    with open_watched(home) as database:
        yield database


def judged(db: Database, source: Any, **options: Any) -> Audit:
    defaults = {"decided_at": None, "fields": None, "basis": "observed", "progress": None}
    return audit(db.reader, source, **{**defaults, **options})


def everything(found: Audit) -> list[Any]:
    return [
        found.rows.rows(),
        found.verdicts.rows(),
        found.counts,
        found.summary.rows(),
        found.naive,
        found.other_basis,
        found.columns,
        found.ignored,
        found.leaks.rows(),
        None if found.universe is None else found.universe.rows(),
        found.to_json(),
        found.to_html(),
    ]


PARTITIONS = {
    "parts": st.lists(st.lists(ROW, max_size=4), max_size=4),
    "rows_max": st.sampled_from([3, 5, 1_000]),
    "held_bytes": st.sampled_from([0, 1_000, 1_000_000]),
    "universe": st.sampled_from([None, {"within": "30d", "status": "all"}]),
}
Parts = list[list[dict[str, Any]]]


def assert_batches_are_judged_as_one(
    db: Database, parts: Parts, universe: Any, **sizes: int
) -> None:
    batches = [pa.RecordBatch.from_pylist(part, SCHEMA) for part in parts]
    whole = pa.Table.from_batches(batches, SCHEMA)
    reader = pa.RecordBatchReader.from_batches(SCHEMA, batches)
    found = judged(db, reader, universe=universe, **sizes)
    assert everything(found) == everything(judged(db, whole, universe=universe))
    assert len(found) == whole.num_rows


@settings(max_examples=5, deadline=None)
@given(**PARTITIONS)
def test_batches_of_any_size_give_the_answer_of_one(
    db: Database, parts: Parts, rows_max: int, held_bytes: int, universe: Any
) -> None:
    assert_batches_are_judged_as_one(db, parts, universe, rows_max=rows_max, held_bytes=held_bytes)


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(**PARTITIONS)
def test_many_batches_of_any_size_give_the_answer_of_one(
    db: Database, parts: Parts, rows_max: int, held_bytes: int, universe: Any
) -> None:
    assert_batches_are_judged_as_one(db, parts, universe, rows_max=rows_max, held_bytes=held_bytes)


ROWS = [
    {"event_id": event, "decided_at": at(day), "date": at(20, 14), "impact": 8.25}
    for event in ("moved", "scored", "off", "nothing")
    for day in (2, 5, 6)
]


@pytest.fixture(scope="module")
def expected(db: Database) -> list[Any]:
    return everything(judged(db, pa.Table.from_pylist(ROWS)))[:9]


def test_files_datasets_and_readers_are_judged_as_their_table(
    db: Database, expected: list[Any], tmp_path: Path
) -> None:
    table = pa.Table.from_pylist(ROWS)
    folder = tmp_path / "rows"
    (folder / "later").mkdir(parents=True)
    for number, name in enumerate(("1.parquet", "2.parquet", "later/3.parquet")):
        pq.write_table(table.slice(number * 5, 5), folder / name, row_group_size=2)
    whole = tmp_path / "whole.parquet"
    pq.write_table(table, whole, row_group_size=3)
    sources = [
        table.to_reader(2),
        ds.dataset(whole),
        pq.ParquetFile(whole),
        whole,
        folder,
        str(folder / "**" / "*.parquet"),
        pl.from_arrow(table),
    ]
    for source in sources:
        assert everything(judged(db, source, rows_max=4))[:9] == expected


def test_a_column_without_values_in_one_file_has_them_in_another(
    db: Database, tmp_path: Path
) -> None:
    table = pa.Table.from_pylist(ROWS)
    empty = table.set_column(3, "impact", pa.nulls(table.num_rows))
    pq.write_table(empty, tmp_path / "1.parquet")
    pq.write_table(table, tmp_path / "2.parquet")
    found = db.audit(tmp_path)
    alone = db.audit(table)
    assert found.verdicts.rows()[len(ROWS) :] == [
        {**row, "row": row["row"] + len(ROWS)} for row in alone.verdicts.rows()
    ]


def test_broken_rows_of_a_csv_keep_their_numbers_in_every_batch(
    db: Database, tmp_path: Path
) -> None:
    lines = ["event_id,decided_at,impact"]
    for number in range(1, 31):
        broken = number in {1, 7, 8, 9, 20, 29, 30}
        lines.append("moved,2026-03-05T12:00:00Z,5" + (",too many" if broken else ""))
    file = tmp_path / "rows.csv"
    file.write_text("\n".join(lines))
    expected = everything(judged(db, file))
    for rows_max in (7, 23):
        found = judged(db, file, rows_max=rows_max)
        assert everything(found) == expected
        assert found.verdicts.arrow()["row"].to_pylist() == list(range(1, 31))
        assert [row["row"] for row in found.rows if row["verdict"] == "unreadable"] == [
            *(1, 7, 8, 9, 20, 29, 30)
        ]


def test_a_file_with_broken_rows_only_has_them_all(db: Database, tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("event_id,decided_at\na,b,c\na,b,c\n")
    assert judged(db, file, rows_max=1).counts == {"unreadable": 2}


def test_findings_in_a_file_are_counted_shown_and_read_in_order(
    db: Database,
) -> None:
    table = pa.concat_tables([pa.Table.from_pylist(ROWS)] * 50)
    found = judged(db, table, rows_max=37, held_bytes=0)
    expected = db.audit(table)
    stored = list(own_folder().glob("audit-*"))
    assert stored == [], "the files have no names: nobody has to remove them"
    assert [row["row"] for row in found.leaks.head(3)] == [
        row["row"] for row in expected.leaks.rows()[:3]
    ]
    leaks, reader = len(found.leaks), found.leaks.reader()
    text = repr(found)
    del found
    gc.collect()
    assert text == repr(expected)
    assert reader.read_all().num_rows == leaks


def test_findings_in_a_file_are_a_result_as_those_in_memory(db: Database, tmp_path: Path) -> None:
    table = pa.concat_tables([pa.Table.from_pylist(ROWS)] * 30)
    leaks = judged(db, table, rows_max=37, held_bytes=0).leaks
    expected = Result(db.audit(table).leaks.arrow())
    for n in (0, 3, 10_000):
        assert leaks.head(n).rows() == expected.head(n).rows()
        assert leaks.tail(n).rows() == expected.tail(n).rows()
    assert repr(leaks) == repr(expected)
    assert leaks._repr_html_() == expected._repr_html_()
    assert pl.DataFrame(leaks).equals(expected.pl())
    leaks.to_parquet(tmp_path / "leaks.parquet")
    assert pq.read_table(tmp_path / "leaks.parquet").to_pylist() == expected.rows()
    assert "_table" not in vars(leaks), "nothing of this reads all rows at once"
    assert leaks.head(-3).rows() == expected.head(-3).rows()
    assert leaks.tail(-3).rows() == expected.tail(-3).rows()


def test_an_audit_that_fails_leaves_no_file(db: Database) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pylist(ROWS)
        raise pa.ArrowInvalid("the disk is gone")

    schema = pa.Table.from_pylist(ROWS).schema
    reader = pa.RecordBatchReader.from_batches(schema, batches())
    with pytest.raises(InvalidArgument, match="the reader can't be read: the disk is gone"):
        judged(db, reader, rows_max=1, held_bytes=0)
    assert list(own_folder().glob("audit-*")) == []


def test_a_store_spills_only_what_is_too_much_for_memory() -> None:
    table = pa.table({"verdict": ["clean"] * 10, "row": range(10)})
    with RowStore(["verdict"], held_bytes=table.nbytes * 3) as store:
        for _ in range(3):
            store.append(table)
        assert store.path is None
        for _ in range(3):
            store.append(table)
        assert store.path is not None
        rows = store.finish()
    assert len(rows) == rows.arrow().num_rows == 60
    assert rows.arrow()["row"].to_pylist() == [*range(10)] * 6


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gone.parquet", "there is no file"),
        ("gone.csv", "there is no file"),
        ("cut.parquet", "is cut or damaged"),
        ("empty", "no Parquet file is there"),
        ("*.txt", "expected only Parquet files"),
    ],
)
def test_files_that_can_t_be_read_are_named(
    db: Database, tmp_path: Path, name: str, message: str
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "cut.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(InvalidArgument, match=message) as raised:
        db.audit(tmp_path / name)
    assert name in str(raised.value)


def test_progress_counts_the_rows(db: Database) -> None:
    steps: list[str] = []
    judged(db, pa.Table.from_pylist(ROWS), progress=steps.append, rows_max=5)
    assert steps[0] == "reading the rows"
    assert any(step.startswith("judging date, 5 of 12 rows, ") for step in steps)
    assert steps[-1].startswith("12 of 12 rows, ")


def test_a_batch_holds_no_more_rows_than_it_should() -> None:
    rows = pa.table({"event_id": ["a"] * 10, "decided_at": [at(1)] * 10})
    read = read_signals(rows, decided_at=None, fields=None, rows_max=4)
    assert read.rows == 10
    assert [batch.table["row"].to_pylist() for batch in read.batches] == [
        [1, 2, 3, 4],
        [5, 6, 7, 8],
        [9, 10],
    ]


def test_distinct_and_repeated_instants_are_shown_alike() -> None:
    stamps = pa.chunked_array([[at(2), None, at(2)], [at(3, 1)]], pa.timestamp("us", "UTC"))
    expected = ["2026-03-02T00:00:00Z", None, "2026-03-02T00:00:00Z", "2026-03-03T01:00:00Z"]
    assert as_text(stamps).to_pylist() == expected
    elsewhere = stamps.cast(pa.timestamp("ns", "Asia/Tokyo"))
    assert as_text(elsewhere).to_pylist() == expected
    naive = as_text(stamps.cast(pa.timestamp("us"))).to_pylist()
    assert naive == [text and text.removesuffix("Z") for text in expected]
    assert as_text(stamps.slice(0, 0)).to_pylist() == []


def test_the_command_reads_folders(home: Path, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "rows").mkdir()
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "rows" / "1.parquet")
    assert main(["audit", str(tmp_path / "rows"), "--home", str(home)]) == 0
    assert capsys.readouterr().out.startswith("rows: ")
