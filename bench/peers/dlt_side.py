"""dlt with the merge strategy `scd2`: Arrow tables, Parquet files, DuckDB.

The row hash is a column of the Arrow table, as dlt's documentation wants it for Arrow.
"""

import os
import sys
from datetime import datetime
from pathlib import Path

# dlt sends telemetry from its import on; only this variable prevents it.
os.environ["RUNTIME__DLTHUB_TELEMETRY"] = "false"
os.environ["LOAD__DELETE_COMPLETED_JOBS"] = "true"

import dlt
import duckdb

from bench.peers.child import COMPARED, TYPED, serve

_HASHED = f"SELECT *, md5(row({', '.join(COMPARED)})::VARCHAR) AS row_hash FROM ({TYPED})"


def main() -> None:
    folder = Path(sys.argv[1])
    pipeline = dlt.pipeline(
        pipeline_name="bench",
        pipelines_dir=str(folder / "pipelines"),
        destination=dlt.destinations.duckdb(str(folder / "warehouse.duckdb")),
        dataset_name="history",
    )

    def take_day(at: datetime) -> None:
        with duckdb.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            rows = connection.sql(_HASHED)
            events = dlt.resource(
                rows.to_arrow_table(),
                name="events",
                write_disposition={
                    "disposition": "merge",
                    "strategy": "scd2",
                    "boundary_timestamp": at,
                    "row_version_column_name": "row_hash",
                    "validity_column_names": ["known_from", "known_to"],
                },
            )
        pipeline.run(events, loader_file_format="parquet").raise_on_failed_jobs()

    serve(take_day, dlt=dlt.__version__, duckdb=duckdb.__version__)


if __name__ == "__main__":
    main()
