"""Tables of the company, in its own DuckDB file: with pandas, dbt and SQLMesh.

Each is eager: it is made anew once a table of Almanac that it reads has changed.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import dagster as dg
import duckdb

from company.warehouse import Warehouse

ALMANAC: Final = "almanac"
"""The prefix of Almanac's keys: its setting ALMANAC_KEY_PREFIX."""
PROJECT: Final = Path(__file__).parents[1]


def of_almanac(*tables: str) -> list[dg.AssetKey]:
    return [dg.AssetKey([ALMANAC, table]) for table in tables]


class CompanyData(dg.ConfigurableResource["CompanyData"]):
    """The folder of the company's own tables."""

    folder: str

    @property
    def file(self) -> Path:
        return Path(self.folder) / "company.duckdb"


@dg.asset(
    deps=of_almanac("events"),
    automation_condition=dg.AutomationCondition.eager(),
    group_name="company",
    kinds={"pandas"},
    description="Events of the next seven days, one row each, with the number of their coins.",
)
def week_ahead(warehouse: Warehouse, company_data: CompanyData) -> dg.MaterializeResult[None]:
    with warehouse.open() as db:
        frame = db.upcoming(within="7d").df()
    frame["coins_linked"] = frame["coins"].map(len)
    with duckdb.connect(str(company_data.file)) as connection:
        connection.register("frame", frame)
        connection.execute("CREATE OR REPLACE TABLE week_ahead AS FROM frame")
    return dg.MaterializeResult(metadata={"dagster/row_count": len(frame)})


@dg.asset(
    deps=of_almanac("event_versions", "events"),
    automation_condition=dg.AutomationCondition.eager(),
    group_name="company",
    kinds={"dbt", "duckdb"},
    description="Events as they were known a week ago, beside what is known now; made by dbt.",
)
def moved_events(warehouse: Warehouse, company_data: CompanyData) -> dg.MaterializeResult[None]:
    target, logs = f"{company_data.folder}/target", f"{company_data.folder}/logs"
    words = ("build", "--profiles-dir", ".", "--target-path", target, "--log-path", logs)
    run_program("dbt", *words, folder="dbt", warehouse=warehouse, data=company_data)
    return counted("moved_events", company_data)


@dg.asset(
    deps=of_almanac("events"),
    automation_condition=dg.AutomationCondition.eager(),
    group_name="company",
    kinds={"sqlmesh", "duckdb"},
    description="The days ahead with the most events; made by SQLMesh.",
)
def busy_days(warehouse: Warehouse, company_data: CompanyData) -> dg.MaterializeResult[None]:
    plan = ("--log-file-dir", f"{company_data.folder}/logs", "plan", "--auto-apply", "--no-prompts")
    # The first makes a model that is new or was edited, the second makes the rows anew.
    for words in (plan, (*plan, "--restate-model", "reports.busy_days")):
        run_program("sqlmesh", *words, folder="sqlmesh", warehouse=warehouse, data=company_data)
    return counted("reports.busy_days", company_data)


def run_program(
    name: str, *words: str, folder: str, warehouse: Warehouse, data: CompanyData
) -> None:
    """Run a program of this environment in its folder; its tables are in the company's file.

    Raises:
        dg.Failure: it ended with an error.
    """
    done = subprocess.run(
        [str(Path(sys.executable).parent / name), *words],
        cwd=PROJECT / folder,
        env={
            **os.environ,
            "ALMANAC_FILE": str(warehouse.file),
            "COMPANY_FILE": str(data.file),
            "TZ": "UTC",
        },
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise dg.Failure(f"{name} failed: {(done.stdout + done.stderr)[-2000:]}")


def counted(table: str, data: CompanyData) -> dg.MaterializeResult[None]:
    with duckdb.connect(str(data.file), read_only=True) as connection:
        # SQLMesh makes a view of the name, which is no table to older versions of DuckDB.
        ((rows,),) = connection.execute("SELECT count(*) FROM " + table).fetchall()
    return dg.MaterializeResult(metadata={"dagster/row_count": rows})
