"""The example project: eager tables downstream of Almanac, made anew after a change alone."""

import json
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import duckdb
import pytest

from pipeline.build import build_definitions
from pipeline.instance import instance_of
from tests.pipeline.homes_in_days import settings_of
from tests.pipeline.small_home import NOW, SmallHome
from tests.warehouse.schema.new_field_story import json_event
from warehouse.history.merge import merge

PROJECT = Path(__file__).parents[3] / "examples/company"
PREFIX = {"key_prefix": ("almanac",), "group_prefix": "almanac_", "name_prefix": "almanac_"}


@pytest.fixture
def company(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(PROJECT))
    import company.assets

    yield company.assets
    for name in [name for name in sys.modules if name.partition(".")[0] == "company"]:
        del sys.modules[name]


def event(**given: Any) -> dict[str, Any]:
    return {**json_event(), **given}


def land(small: SmallHome, minutes: int, *events: dict[str, Any]) -> None:
    body = json.dumps({"data": events, "meta": {}}).encode()
    small.land("events", at=NOW + timedelta(minutes=minutes), body=body)


# Dagster's own tester of conditions uses a parameter that Dagster calls beta.
@pytest.mark.filterwarnings("ignore:Parameter `include_sources`")
def test_an_eager_table_is_requested_once_for_each_change_and_not_otherwise(
    tmp_path: Path, company: Any
) -> None:
    small = SmallHome(tmp_path / "home")
    (tmp_path / "company").mkdir()
    land(small, 0, event(title="Mainnet"))
    merge(small.home)
    settings = settings_of(small.home.root, **PREFIX, executor="deployment")
    theirs = dg.Definitions(
        assets=[company.week_ahead],
        resources={
            "warehouse": company.Warehouse(home=str(small.home.root)),
            "company_data": company.CompanyData(folder=str(tmp_path / "company")),
        },
        executor=dg.in_process_executor,
    )
    both = dg.Definitions.merge(build_definitions(settings), theirs)
    cursor = None
    requested: list[int] = []
    with instance_of(small.home) as instance:
        # The first run records the tables that were published before.
        assert (
            both.resolve_job_def("almanac_merge")
            .execute_in_process(instance=instance, tags={"dagster/backfill": "first"})
            .success
        )
        stories = (
            *((), ()),
            *((event(title="Mainnet"),), (event(title="Mainnet 2"),)),
            *((), (event(title="Mainnet 2"),), (event(title="Mainnet 3"),)),
        )
        for number, events in enumerate(stories):
            if events:
                land(small, number + 1, *events)
            done = both.resolve_job_def("almanac_merge").execute_in_process(instance=instance)
            assert done.success
            decided = dg.evaluate_automation_conditions(both, instance, cursor=cursor)
            cursor = decided.cursor
            requested.append(decided.total_requested)
            if decided.total_requested:
                job = theirs.resolve_implicit_global_asset_job_def()
                assert job.execute_in_process(instance=instance).success
    assert requested == [0, 0, 0, 1, 0, 0, 1]
    with duckdb.connect(str(tmp_path / "company/company.duckdb"), read_only=True) as made:
        assert made.sql("FROM week_ahead").columns
