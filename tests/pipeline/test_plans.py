"""The daily job on plans that show less, and with a used up quota."""

from pathlib import Path

import pytest

from catalog.sandbox.sandbox import Sandbox
from pipeline.instance import instance_of
from tests.pipeline.homes_in_days import NOW, TODAY, address_of, run_sandbox_days, settings_of
from warehouse.home import Home


@pytest.mark.parametrize(
    ("plan", "lacking"),
    [
        ("free", ["categories", "export"]),
        pytest.param("standard", ["export"], marks=pytest.mark.long),
    ],
)
def test_a_run_reports_feeds_that_the_plan_lacks_and_pulls_the_rest(
    tmp_path: Path, plan: str, lacking: list[str]
) -> None:
    settings = settings_of(tmp_path, plan=plan)
    with instance_of(Home(tmp_path)) as instance:
        summary = run_sandbox_days(settings, instance, days=1)
    assert sorted(summary.notes) == [
        f"{TODAY} landed_{feed}: not in the plan {plan}" for feed in lacking
    ]
    assert summary.rows > 0
    feeds = {batch_id.split("-")[1] for batch_id in Home(tmp_path).landing.batch_ids()}
    assert feeds == {"events", "cancellations", "coins", "categories"} - set(lacking)
    assert Home(tmp_path).warehouse.exists()


def test_a_run_whose_quota_runs_out_lands_the_received_rows_and_succeeds(
    tmp_path: Path, almanac_sandbox: Sandbox
) -> None:
    key = almanac_sandbox.new_key("enterprise", monthly_quota=12)
    settings = settings_of(tmp_path, **address_of(almanac_sandbox.base_url, key))
    with instance_of(Home(tmp_path)) as instance:
        summary = run_sandbox_days(settings, instance, days=1, now=NOW.replace(hour=12))
    assert summary.requests >= 10
    assert any("deferred" in note for note in summary.notes)
    assert summary.rows > 0
    assert summary.quota_left == 0
