"""Slices of rows from files and readers: their sizes, and what is held in memory."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from almanac.streams import RowProgress, open_stream, regrouped, scan_options

GROUPS, GROUP_ROWS = 120, 20_000
FORMS: dict[str, Callable[[Path], Any]] = {
    "path": lambda path: path,
    "pattern": lambda path: f"{path.parent}/*.parquet",
    "file": pq.ParquetFile,
    "dataset": ds.dataset,
}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rows") / "rows.parquet"
    random = np.random.default_rng(0)
    with pq.ParquetWriter(path, pa.schema({"a": pa.float64(), "b": pa.float64()})) as writer:
        for _ in range(GROUPS):
            columns = {name: random.random(GROUP_ROWS) for name in ("a", "b")}
            writer.write_table(pa.table(columns))
    return path


@pytest.mark.parametrize("form", FORMS)
def test_a_file_is_never_held_as_a_whole(file: Path, form: str) -> None:
    stream = open_stream(FORMS[form](file))
    assert stream is not None
    assert stream.rows == GROUPS * GROUP_ROWS
    before, most, rows = pa.total_allocated_bytes(), 0, 0
    for table in stream.slices(["a", "b"], GROUP_ROWS):
        rows += table.num_rows
        most = max(most, pa.total_allocated_bytes() - before)
    assert rows == stream.rows
    assert most < file.stat().st_size / 2


def test_a_scan_never_holds_a_whole_file(file: Path) -> None:
    dataset = ds.dataset(file)
    before, most = pa.total_allocated_bytes(), 0
    for _ in dataset.scanner(**scan_options(dataset, GROUP_ROWS)).to_reader():
        most = max(most, pa.total_allocated_bytes() - before)
    assert most < file.stat().st_size / 2


def test_batches_of_any_size_become_tables_of_one_size() -> None:
    table = pa.table({"n": range(10)})
    sizes = [0, 3, 0, 4, 1, 2, 0]
    batches, first = [], 0
    for size in sizes:
        batches.append(table.slice(first, size))
        first += size
    found = list(regrouped(batches, table.schema, 4))
    assert [each.num_rows for each in found] == [4, 4, 2]
    assert pa.concat_tables(found).equals(table)
    (empty,) = regrouped([table.slice(0, 0)], table.schema, 4)
    assert empty.num_rows == 0
    assert empty.schema == table.schema


def test_progress_says_how_many_rows_are_done_and_how_fast() -> None:
    lines: list[str] = []
    seconds = iter([0.0, 2.0, 4.0])
    progress = RowProgress(lines.append, 4_000_000, lambda: next(seconds))
    progress.step("reading")
    progress.add(1_000_000)
    progress.step("judging date")
    assert lines == [
        "reading",
        "1,000,000 of 4,000,000 rows, 500,000 a second",
        "judging date, 1,000,000 of 4,000,000 rows, 250,000 a second",
    ]
    RowProgress(None, None).add(1)
