"""Rows that are judged in batches: the same answer as at once, from readers and large files."""

from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from almanac.audit.audit import audit
from almanac.audit.report import Audit
from almanac.core.errors import InvalidArgument
from almanac.database import Database
from tests.almanac.audit.watched import at

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


def judged(db: Database, source: Any, **options: Any) -> Audit:
    defaults = {"decided_at": None, "fields": None, "basis": "observed"}
    return audit(db.reader, source, **{**defaults, **options})


def everything(found: Audit) -> list[Any]:
    return [
        found.rows.rows(),
        found.verdicts.rows(),
        found.counts,
        found.summary.rows(),
        found.naive,
        found.columns,
        found.ignored,
        found.leaks.rows(),
        None if found.universe is None else found.universe.rows(),
        found.to_json(),
        found.to_html(),
    ]


PARTITIONS = {
    "parts": st.lists(st.lists(ROW, max_size=4), max_size=2),
    "rows_max": st.just(4),
    "universe": st.sampled_from([None, {"within": "30d", "status": "all"}]),
}
Parts = list[list[dict[str, Any]]]


@settings(max_examples=settings.default.max_examples // 5)  # An example takes a second.
@given(**PARTITIONS)
def test_batches_of_any_size_give_the_answer_of_one(
    db: Database, parts: Parts, rows_max: int, universe: Any
) -> None:
    batches = [pa.RecordBatch.from_pylist(part, SCHEMA) for part in parts]
    whole = pa.Table.from_batches(batches, SCHEMA)
    reader = pa.RecordBatchReader.from_batches(SCHEMA, batches)
    found = judged(db, reader, universe=universe, rows_max=rows_max)
    assert everything(found) == everything(judged(db, whole, universe=universe))
    assert len(found) == whole.num_rows


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
    sources = [folder, str(folder / "**" / "*.parquet"), pl.from_arrow(table)]
    for source in sources:
        assert everything(judged(db, source, rows_max=8))[:9] == expected


def test_broken_rows_of_a_csv_keep_their_numbers_in_every_batch(
    db: Database, tmp_path: Path
) -> None:
    lines = ["event_id,decided_at,impact"]
    for number in range(1, 31):
        broken = number in {1, 7, 8, 9, 20, 29, 30}
        lines.append("moved,2026-03-05T12:00:00Z,5" + (",too many" if broken else ""))
    file = tmp_path / "rows.csv"
    file.write_text("\n".join(lines))
    found = judged(db, file, rows_max=17)
    assert everything(found) == everything(judged(db, file))
    assert found.verdicts.arrow()["row"].to_pylist() == list(range(1, 31))
    unreadable = [row["row"] for row in found.rows if row["verdict"] == "unreadable"]
    assert unreadable == [1, 7, 8, 9, 20, 29, 30]


@pytest.mark.parametrize(
    ("name", "message"),
    [
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
