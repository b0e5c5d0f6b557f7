"""A partial, flagged or quarantined batch is always reported."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from catalog.sandbox.sandbox import Sandbox
from pipeline.instance import instance_of
from tests.pipeline.conftest import Almanac
from tests.pipeline.homes_in_days import TODAY, metadata_of, opened_session, run_assets, settings_of
from warehouse.home import Home

SHIFTED = "shift_rows~/v2/coins"
CUT = "truncate=0.6~/v2/events/export"
MONTH = ("--from", "2026-01-01", "--to", "2026-01-31")


@pytest.fixture
def sandbox(almanac_sandbox: Sandbox) -> Iterator[Sandbox]:
    yield almanac_sandbox
    almanac_sandbox.faults.clear()


@pytest.fixture
def given(tmp_path: Path, sandbox: Sandbox) -> dict[str, str]:
    return {
        "base_url": sandbox.base_url,
        "api_key": sandbox.new_key("enterprise"),
        "plan": "elite",
        "home": str(tmp_path / "home"),
        "coins": "bitcoin,ethereum",
    }


def line_of(output: str, kind: str) -> str:
    lines = [line for line in output.splitlines() if line.startswith(f"{kind}: ")]
    assert len(lines) == 1, output
    return lines[0]


def test_a_backfill_reports_a_partial_export_with_the_reason(
    almanac: Almanac, given: dict[str, str], sandbox: Sandbox
) -> None:
    sandbox.faults.set(CUT)
    output = almanac("backfill", *MONTH, "--source", "export", "--yes", **given).output
    line = line_of(output, "Partial")
    assert re.search(r"\d{8}T\d{6}Z-export-[0-9a-f]+: .*the CSV ends inside a record", line)


def test_run_names_the_partial_batch(
    almanac: Almanac, given: dict[str, str], sandbox: Sandbox
) -> None:
    sandbox.faults.set(SHIFTED)
    line = line_of(almanac("run", **given).output, "Partial")
    assert re.search(r"\d{8}T\d{6}Z-coins-[0-9a-f]+: \S", line)


def test_programs_get_each_problem_as_an_object_also_of_a_run_that_fails_later(
    almanac: Almanac, given: dict[str, str], sandbox: Sandbox
) -> None:
    sandbox.faults.set(SHIFTED)
    in_the_way = Path(given["home"]) / "warehouse.duckdb"
    in_the_way.mkdir(parents=True)
    assert "-coins-" in line_of(almanac("run", code=1, **given).output, "Partial")
    in_the_way.rmdir()
    merged = json.loads(almanac("merge", "--json", **given).stdout)
    (problem,) = merged["problems"]
    assert (problem["kind"], problem["feed"]) == ("partial", "coins")
    assert problem["why"]


def test_a_materialisation_shows_a_partial_batch_in_its_log_and_metadata(tmp_path: Path) -> None:
    settings = settings_of(tmp_path / "home")
    with (
        instance_of(Home(settings.home)) as instance,
        opened_session(settings) as (session, service),
    ):
        service.sandbox.faults.set(CUT)
        result = run_assets(
            settings,
            instance,
            "landed_export",
            partition=TODAY,
            catalog=session,
            clock=service.clock,
        )
        metadata = metadata_of(result, "landed_export", TODAY)
        entries = [str(entry) for entry in instance.all_logs(result.run_id)]
    assert "partial" in metadata["problems"]
    assert any("Partial: " in entry and "-export-" in entry for entry in entries)
