"""`almanac budget` and `almanac backfill`, as text and as JSON."""

import json
import re
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
    assert done["requests"] <= done["prices"]["list"]
    assert (done["resume_at"], done["batches"]) == (None, 3)
    count = almanac("sql", "SELECT count(*) AS n FROM events", "--format", "json", **given)
    assert json.loads(count.stdout)[0]["n"] == done["versions"]


def test_the_price_is_shown_and_nothing_begins_without_a_yes(
    almanac: Almanac, given: dict[str, str], almanac_sandbox: Sandbox
) -> None:
    almanac_sandbox.forget_requests()
    done = almanac("backfill", *MONTHS, code=2, **given)
    assert "By the export: up to 2 requests (chosen)." in done.output
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


def test_a_quota_that_is_not_enough_is_part_of_the_price(
    almanac: Almanac, given: dict[str, str]
) -> None:
    done = almanac("backfill", *MONTHS, "--source", "list", code=2, monthly_quota="6", **given)
    assert re.search(r"backfills may send \d requests", done.output)
    assert "They are not enough" in done.output


def test_the_price_is_a_record_without_a_yes(almanac: Almanac, given: dict[str, str]) -> None:
    done = record_of(almanac("backfill", *MONTHS, "--json", code=2, **given))
    assert list(done["prices"]) == ["export", "list"]
    assert (done["by"], done["prices"]["export"], done["resumed"]) == ("export", 2, False)
    assert done["available"] < done["left"]


def test_a_backfill_before_the_window_of_the_plan_fails_with_its_first_date(
    almanac: Almanac, almanac_sandbox: Sandbox
) -> None:
    given = {"base_url": almanac_sandbox.base_url, "api_key": almanac_sandbox.new_key("pro")}
    words = ("--from", "2020-01-01", "--to", "2020-02-01", "--yes")
    done = almanac("backfill", *words, code=1, **given)
    assert "the plan pro shows events from" in done.output


def test_a_backfill_by_a_source_that_the_plan_lacks_is_refused(
    almanac: Almanac, almanac_sandbox: Sandbox
) -> None:
    given = {"base_url": almanac_sandbox.base_url, "api_key": almanac_sandbox.new_key("pro")}
    words = ("--from", "2026-04-01", "--source", "export", "--yes")
    assert "has no export" in almanac("backfill", *words, code=2, **given).output


def test_the_budget_shows_the_table_its_cost_and_the_reset_without_a_request(
    almanac: Almanac, given: dict[str, str], almanac_sandbox: Sandbox
) -> None:
    almanac("backfill", *MONTHS, "--yes", "--json", **given)
    almanac_sandbox.forget_requests()
    done = record_of(almanac("budget", "--json", **given))
    shown = almanac("budget", **given).output
    assert almanac_sandbox.requests == []
    assert done["plan"] == "elite"
    assert done["month"]["quota"] == 3_000_000
    assert 0 < done["month"]["used"] < 100
    assert done["projected_at_reset"] <= 3_000_000 - done["month"]["reserve"]
    assert done["factor"] == 1
    rows = {row["name"]: row for row in done["schedule"]}
    assert list(rows) == ["next 7 days", "next 90 days", "later dates", "cancellations"]
    assert [row["interval_s"] for row in rows.values()] == [900, 1_800, 7_200, 900]
    assert done["until_reset"] == pytest.approx(sum(r["until_reset"] for r in rows.values()), abs=9)
    for text in ("resets at", "next 90 days", "30 min", "projected use at reset"):
        assert text in shown


def test_the_budget_without_a_home_names_the_command_to_run(almanac: Almanac) -> None:
    assert "almanac run" in almanac("budget", code=1).output
