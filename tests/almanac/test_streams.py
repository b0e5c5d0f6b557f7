"""Slices of rows from files and readers: their sizes, and what is held in memory."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from almanac.streams import open_stream

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
