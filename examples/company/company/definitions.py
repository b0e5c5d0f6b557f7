"""The code location of the company. dbt and SQLMesh are there if they are installed."""

import os
from importlib.util import find_spec

import dagster as dg

from company.assets import CompanyData, busy_days, moved_events, week_ahead
from company.warehouse import Warehouse

PROGRAMS = {"dbt.adapters.duckdb": moved_events, "sqlmesh": busy_days}


def installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


@dg.definitions
def company() -> dg.Definitions:
    return dg.Definitions(
        assets=[week_ahead, *(asset for name, asset in PROGRAMS.items() if installed(name))],
        sensors=[
            dg.AutomationConditionSensorDefinition(
                "when_almanac_changes",
                target=dg.AssetSelection.all(),
                default_status=dg.DefaultSensorStatus.RUNNING,
                minimum_interval_seconds=30,
            )
        ],
        resources={
            "warehouse": Warehouse(home=os.environ.get("ALMANAC_HOME", "data")),
            "company_data": CompanyData(folder=os.environ.get("COMPANY_DATA", ".")),
        },
        executor=dg.in_process_executor,
    )
