"""What a day is on plans that show less, and when the quota is out."""

from pathlib import Path

import pytest

from catalog.sandbox.sandbox import Sandbox
from pipeline.instance import instance_of
from tests.pipeline.homes_in_days import NOW, TODAY, address_of, play_days, settings_of
from warehouse.home import Home


@pytest.mark.parametrize(
    ("plan", "lacking"),
    [
        ("free", ["categories", "export"]),
        pytest.param("standard", ["export"], marks=pytest.mark.long),
    ],
)
def test_what_the_plan_lacks_is_said_and_the_rest_goes_on(
    tmp_path: Path, plan: str, lacking: list[str]
) -> None:
    settings = settings_of(tmp_path, plan=plan)
    with instance_of(Home(tmp_path)) as instance:
        played = play_days(settings, instance, days=1)
    assert sorted(played.notes) == [
        f"{TODAY} landed_{feed}: not in the plan {plan}" for feed in lacking
    ]
    assert played.rows > 0
    feeds = {batch_id.split("-")[1] for batch_id in Home(tmp_path).landing.batch_ids()}
    assert feeds == {"events", "cancellations", "coins", "categories"} - set(lacking)
    assert Home(tmp_path).warehouse.exists()


def test_a_quota_that_runs_out_lands_what_came_and_is_no_failure(
    tmp_path: Path, almanac_sandbox: Sandbox
) -> None:
    key = almanac_sandbox.new_key("enterprise", monthly_quota=12)
    settings = settings_of(tmp_path, **address_of(almanac_sandbox.base_url, key))
    with instance_of(Home(tmp_path)) as instance:
        played = play_days(settings, instance, days=1, now=NOW.replace(hour=12))
    assert played.requests >= 10
    assert any("deferred" in note for note in played.notes)
    assert played.rows > 0
    assert played.quota_left == 0
