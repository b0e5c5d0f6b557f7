"""Tables of the company, in its own DuckDB file: with pandas, dbt and SQLMesh.

Each is eager: it is made anew once a table of Almanac that it reads has changed.
"""

import os
import subprocess
from pathlib import Path

import dagster as dg
import duckdb

import almanac

HOME = os.environ.get("ALMANAC_HOME", "data")
DATA = Path(os.environ.get("COMPANY_DATA", "."))
PROJECT = Path(__file__).parents[2]
PROGRAMS = Path(os.environ.get("COMPANY_PROGRAMS", PROJECT / ".models/bin"))
"""dbt and SQLMesh: an environment of their own, since they need other packages than Almanac."""


def of_almanac(*tables: str) -> list[dg.AssetKey]:
    return [dg.AssetKey(["almanac", table]) for table in tables]


@dg.asset(
    deps=of_almanac("events"),
    automation_condition=dg.AutomationCondition.eager(),
    group_name="company",
    kinds={"pandas"},
    description="Events of the next seven days, one row each, with the number of their coins.",
)
def week_ahead() -> dg.MaterializeResult[None]:
    with almanac.open(HOME, follow=False) as db:  # One publication for all questions.
        frame = db.upcoming(within="7d").df()
    frame["coins_linked"] = frame["coins"].map(len)
    with duckdb.connect(str(DATA / "company.duckdb")) as connection:
        connection.register("frame", frame)
        connection.execute("CREATE OR REPLACE TABLE week_ahead AS FROM frame")
    return dg.MaterializeResult(metadata={"dagster/row_count": len(frame)})


@dg.asset(
    deps=of_almanac("event_versions", "events"),
    automation_condition=dg.AutomationCondition.eager(),
    group_name="company",
    kinds={"dbt", "duckdb"},
    description="Events as they were known a day ago, beside what is known now; made by dbt.",
)
def moved_events() -> dg.MaterializeResult[None]:
    target, logs = f"{DATA}/target", f"{DATA}/logs"
    words = ("build", "--profiles-dir", ".", "--target-path", target, "--log-path", logs)
    run_program("dbt", *words, folder="dbt")
    return counted("moved_events")


@dg.asset(
    deps=of_almanac("events"),
    automation_condition=dg.AutomationCondition.eager(),
    group_name="company",
    kinds={"sqlmesh", "duckdb"},
    description="The days ahead with the most events; made by SQLMesh.",
)
def busy_days() -> dg.MaterializeResult[None]:
    plan = ("--log-file-dir", f"{DATA}/logs", "plan", "--auto-apply", "--no-prompts")
    # The first makes a model that is new or was edited, the second makes the rows anew.
    for words in (plan, (*plan, "--restate-model", "reports.busy_days")):
        run_program("sqlmesh", *words, folder="sqlmesh")
    return counted("reports.busy_days")


def run_program(name: str, *words: str, folder: str) -> None:
    """Run a program in its folder; its tables are in the company's file.

    Raises:
        dg.Failure: it ended with an error.
    """
    with almanac.open(HOME, follow=False) as db:
        published = db.path
    done = subprocess.run(
        [PROGRAMS / name, *words],
        cwd=PROJECT / folder,
        env={
            **os.environ,
            "ALMANAC_FILE": str(published),
            "COMPANY_FILE": str(DATA / "company.duckdb"),
            "TZ": "UTC",
        },
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise dg.Failure(f"{name} failed: {(done.stdout + done.stderr)[-2000:]}")


def counted(table: str) -> dg.MaterializeResult[None]:
    with duckdb.connect(str(DATA / "company.duckdb"), read_only=True) as connection:
        # SQLMesh makes a view of the name, which is no table to older versions of DuckDB.
        ((rows,),) = connection.execute("SELECT count(*) FROM " + table).fetchall()
    return dg.MaterializeResult(metadata={"dagster/row_count": rows})


automation = dg.AutomationConditionSensorDefinition(
    "automation", target="*", default_status=dg.DefaultSensorStatus.RUNNING
)
