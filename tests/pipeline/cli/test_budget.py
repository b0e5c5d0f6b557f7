"""`almanac budget` and `almanac backfill`, as text and as JSON."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from catalog.sandbox.sandbox import Sandbox
from tests.pipeline.conftest import Almanac

MONTHS = ("--from", "2026-01-01", "--to", "2026-03-31")


@pytest.fixture
def given(almanac_sandbox: Sandbox) -> dict[str, str]:
    """Settings of the sandbox, with a key of its own.

    The rate is Elite's: until the plan is known, a new machine waits as on Free.
    """
    key = almanac_sandbox.new_key("elite")
    return {"base_url": almanac_sandbox.base_url, "api_key": key, "rate_per_s": "25"}


def record_of(done: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_backfill_lands_merges_and_reports_its_requests(
    almanac: Almanac, given: dict[str, str]
) -> None:
    done = record_of(almanac("backfill", *MONTHS, "--source", "list", "--yes", "--json", **given))
    assert done["months"] == ["2026-01-01", "2026-02-01", "2026-03-01"]
    assert done["by"] == "list"
    assert done["versions"] > 1_000
    price = next(price for price in done["prices"] if price["by"] == "list")
    assert done["requests"] <= price["requests"] * 1.02 + 2
    assert price["affordable"]
    assert price["left_after"] == price["left"] - price["requests"]
    assert done["deferred"] == ""
    count = almanac("sql", "SELECT count(*) AS n FROM events", "--format", "json", **given)
    assert json.loads(count.stdout)[0]["n"] == done["versions"]


def test_the_price_is_shown_and_nothing_begins_without_a_yes(
    almanac: Almanac, given: dict[str, str], almanac_sandbox: Sandbox
) -> None:
    almanac_sandbox.forget_requests()
    done = almanac("backfill", *MONTHS, code=2, **given)
    assert "export *" in done.output
    assert "pass --yes to confirm" in done.output
    paths = [request.path for request in almanac_sandbox.requests]
    assert paths == ["/v2/usage", "/v2/events"], "the usage, and one request to count"


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("--from", "2026-03-01", "--to", "2026-01-01"), 2, "is before --from"),
        (("--from", "March"), 2, "expected a form such as 2026-03-01"),
        (("--from", "2140-01-01"), 2, "before it begins on 2140-01-01"),
        ((*MONTHS, "--source", "list", "--max-requests", "3", "--yes"), 2, "allows 3"),
    ],
)
def test_a_backfill_that_cannot_be_done_fails_in_one_line(
    words: tuple[str, ...], code: int, message: str, almanac: Almanac, given: dict[str, str]
) -> None:
    assert message in almanac("backfill", *words, code=code, **given).output


def test_a_cap_is_part_of_the_price(almanac: Almanac, given: dict[str, str]) -> None:
    capped = {**given, "monthly_quota": "5"}
    done = almanac("backfill", *MONTHS, "--source", "list", code=2, **capped)
    assert re.search(r"only \d requests can be sent this month", done.output)


def test_a_backfill_before_the_window_of_the_plan_fails_with_its_first_date(
    almanac: Almanac, almanac_sandbox: Sandbox
) -> None:
    given = {"base_url": almanac_sandbox.base_url, "api_key": almanac_sandbox.new_key("pro")}
    done = almanac("backfill", "--from", "2020-01-01", "--yes", code=1, **given)
    assert "the plan pro shows events from" in done.output


def test_a_backfill_by_a_source_that_the_plan_lacks_is_refused(
    almanac: Almanac, almanac_sandbox: Sandbox
) -> None:
    given = {"base_url": almanac_sandbox.base_url, "api_key": almanac_sandbox.new_key("pro")}
    words = ("--from", "2026-04-01", "--source", "export", "--yes")
    assert "has no export" in almanac("backfill", *words, code=2, **given).output


def test_the_budget_needs_no_request_and_prices_a_backfill(
    almanac: Almanac, given: dict[str, str], almanac_sandbox: Sandbox
) -> None:
    almanac("backfill", *MONTHS, "--yes", "--json", **given)
    almanac_sandbox.forget_requests()
    done = record_of(almanac("budget", "--json", **given))
    assert almanac_sandbox.requests == []
    assert done["plan"] == "elite"
    assert done["month"]["quota"] == 3_000_000
    assert 0 < done["month"]["used"] < 100
    assert done["projected_at_reset"] <= 3_000_000 - done["month"]["reserve"]
    units = {row["unit"]: row for row in done["schedule"]}
    assert units["cancellations"]["why"]
    assert done["backfill"] == []
    priced = record_of(almanac("budget", *MONTHS, "--json", **given))
    assert [price["by"] for price in priced["backfill"]] == ["export", "list"]
    shown = almanac("budget", *MONTHS, **given).output
    assert "projected use at reset" in shown
    assert "cancellations" in shown
    assert "Reserved for daily" in shown
    assert "needs --from" in almanac("budget", "--to", "2026-03-01", code=2, **given).output


def test_a_share_of_the_rate_makes_the_best_time_longer(
    almanac: Almanac, given: dict[str, str]
) -> None:
    shared = {**given, "rate_per_s": "5", "burst": "2"}
    priced = record_of(almanac("budget", *MONTHS, "--json", **shared))
    by_list = next(price for price in priced["backfill"] if price["by"] == "list")
    assert by_list["seconds"] == pytest.approx(by_list["requests"] / 5)


def test_a_backfill_is_priced_where_there_is_no_home(
    almanac: Almanac, given: dict[str, str], tmp_path: Path
) -> None:
    priced = record_of(almanac("budget", *MONTHS, "--json", **given))
    assert priced["plan"] == "elite"
    assert priced["backfill"][0]["requests"] == 2
    assert "There is no home at" in almanac("budget", *MONTHS, **given).output
    assert list(tmp_path.iterdir()) == [], "a mistyped home is not created"


def test_the_budget_without_a_home_names_the_command_to_run(almanac: Almanac) -> None:
    assert "almanac run" in almanac("budget", code=1).output
