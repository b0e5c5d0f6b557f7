"""dlt loading the same export: Arrow batches, Parquet files, DuckDB. Run as a child.

Its documentation names this as the fastest way: Arrow tables pass the normaliser unchanged, and
DuckDB loads Parquet fastest. It makes one typed table: no versions, no lake.
"""

import argparse
import os
import time
from collections.abc import Iterator
from pathlib import Path

# dlt sends telemetry from its import on; only this variable prevents it.
os.environ["RUNTIME__DLTHUB_TELEMETRY"] = "false"

import dlt
import pyarrow as pa
from pyarrow import csv

from bench.children import print_figures

_BLOCK_BYTES = 64 << 20


@dlt.resource(name="events", write_disposition="replace")
def events(path: str) -> Iterator[pa.Table]:
    """Yield the export as Arrow tables, typed by their reader."""
    reader = csv.open_csv(
        path,
        read_options=csv.ReadOptions(block_size=_BLOCK_BYTES),
        parse_options=csv.ParseOptions(newlines_in_values=True),
    )
    for batch in reader:
        yield pa.Table.from_batches([batch])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("export", type=Path)
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    pipeline = dlt.pipeline(
        pipeline_name="bench",
        pipelines_dir=str(arguments.folder / "pipelines"),
        destination=dlt.destinations.duckdb(str(arguments.folder / "dlt.duckdb")),
        dataset_name="main_data",
    )
    pipeline.run(events(str(arguments.export)), loader_file_format="parquet")
    print_figures(seconds=time.perf_counter() - began, version=dlt.__version__)


if __name__ == "__main__":
    main()
