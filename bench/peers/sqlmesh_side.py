"""SQLMesh with the model kind SCD_TYPE_2_BY_COLUMN, dated by the execution time."""

import os
import shutil
import sys
from datetime import datetime
from pathlib import Path

os.environ["SQLMESH__DISABLE_ANONYMIZED_ANALYTICS"] = "true"

import duckdb
import sqlmesh

from bench.peers.child import COMPARED, TYPED, serve


def main() -> None:
    project = Path(sys.argv[1]).resolve() / "project"
    shutil.copytree(Path(__file__).parent / "sqlmesh_project", project)
    model = project / "models" / "events.sql"
    model.write_text(model.read_text().replace("COMPARED", ", ".join(COMPARED)) + TYPED)
    os.environ["BENCH_FILE"] = str(project.parent / "warehouse.duckdb")
    context = sqlmesh.Context(paths=str(project))

    def take_day(at: datetime) -> None:
        if Path(os.environ["BENCH_FILE"]).exists():
            context.run(execution_time=at, ignore_cron=True)
        else:
            context.plan(execution_time=at, auto_apply=True, no_prompts=True)
        context.close()

    serve(take_day, sqlmesh=sqlmesh.__version__, duckdb=duckdb.__version__)


if __name__ == "__main__":
    main()
