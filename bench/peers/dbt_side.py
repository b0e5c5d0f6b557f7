"""A dbt snapshot on DuckDB: strategy `check`, deletions invalidated, dated by a variable.

The project is parsed once; each day reuses its manifest, the fastest way that dbt documents.
"""

import json
import os
import shutil
import sys
from datetime import UTC, datetime
from pathlib import Path

os.environ["DBT_SEND_ANONYMOUS_USAGE_STATS"] = "false"

import duckdb
from dbt.adapters.duckdb.connections import DuckDBConnectionManager
from dbt.cli.main import dbtRunner
from dbt.version import __version__

from bench.peers.child import COMPARED, TYPED, serve


def main() -> None:
    project = Path(sys.argv[1]).resolve() / "project"
    shutil.copytree(Path(__file__).parent / "dbt_project", project)
    os.environ["BENCH_FILE"] = str(project.parent / "warehouse.duckdb")
    places = ["--project-dir", str(project), "--profiles-dir", str(project), "--quiet"]

    def run(runner: dbtRunner, *words: str, at: datetime) -> object:
        given = json.dumps({"observed_at": at.isoformat(), "typed": TYPED, "compared": COMPARED})
        answer = runner.invoke([*words, *places, "--vars", given])
        if not answer.success:
            raise RuntimeError(f"dbt {words[0]} failed: {answer.exception or answer.result}")
        return answer.result

    manifest = run(dbtRunner(), "parse", at=datetime.now(UTC))

    def take_day(at: datetime) -> None:
        run(dbtRunner(manifest=manifest), "snapshot", at=at)
        DuckDBConnectionManager.close_all_connections()

    serve(take_day, dbt=__version__, duckdb=duckdb.__version__)


if __name__ == "__main__":
    main()
