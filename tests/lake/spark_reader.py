"""A driver that reads Iceberg tables in a bucket through Spark, in a process of its own.

    python -m tests.lake.spark_reader MASTER CATALOG FOLDER AS_OF

It writes the rows to Parquet and the plan to a text in FOLDER. The executors get the variables of
S3; Spark writes its event log to FOLDER/log.
"""

import os
import sys
from datetime import datetime
from pathlib import Path

from almanac import spark as almanac_spark
from almanac.lake import open_lake
from tests.lake.servers import spark_session


def main(master: str, catalog: str, folder: str, as_of: str) -> None:
    log = Path(folder) / "log"
    log.mkdir()
    options = {
        f"spark.executorEnv.{name}": value
        for name, value in os.environ.items()
        if name.startswith("AWS_")
    }
    options |= {"spark.eventLog.enabled": "true", "spark.eventLog.dir": log.as_uri()}
    options["spark.sql.session.timeZone"] = "America/New_York"
    lake = open_lake(catalog)
    plans = []
    with spark_session(master, **options) as spark:
        for table in ("event_versions", "events", "coins", "cancellations"):
            frame = almanac_spark.read(spark, table, lake)
            plans.append(frame._jdf.queryExecution().toString())
            frame.write.parquet(f"{folder}/{table}")
        valid = almanac_spark.read(
            spark, "event_versions", lake, as_of=datetime.fromisoformat(as_of)
        )
        valid.write.parquet(f"{folder}/valid")
    (Path(folder) / "plans.txt").write_text("\n".join(plans))


if __name__ == "__main__":
    main(*sys.argv[1:])
