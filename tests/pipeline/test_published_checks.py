"""Each asset check of the published tables passes for a sound file, and fails for a damaged one."""

import shutil
from pathlib import Path
from typing import Final

import dagster as dg
import duckdb
import pytest

from assets.event_changes import CHANGES, FEW_REJECTS, ONE_ROW_PER_VERSION
from assets.layout import Layout
from assets.published_tables import check_results, check_specs
from tests.pipeline.small_home import DAY, NOW, SmallHome
from warehouse.history.merge import merge
from warehouse.home import Home

ROOT: Final = Path(__file__).parents[2]
SPECS: Final = {
    f"{spec.asset_key.to_user_string()}.{spec.name}": spec for spec in check_specs(Layout())
}
DAMAGE: Final = {
    "events.one_current_version": (
        "INSERT INTO state.ended_versions BY NAME "
        "SELECT event_id, version + 1 AS version FROM events"
    ),
    "events.unique_events": "INSERT INTO state.current_versions FROM state.current_versions",
    "event_versions.spans_run_forward": (
        "INSERT INTO state.ended_versions BY NAME "
        "SELECT event_id, known_from, known_from - INTERVAL 1 DAY AS known_to FROM event_versions"
    ),
    "event_versions.unique_versions": (
        "INSERT INTO state.current_versions FROM state.current_versions"
    ),
    "event_versions.every_version": "DELETE FROM state.current_versions WHERE event_id = 'b'",
    "events.no_new_fields": """
        UPDATE state.current_versions SET version_extra = '{"venue": "Lisbon"}'
        WHERE event_id = 'b'
    """,
}
"""SQL that makes each check fail, by table and check."""


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with two days: event a is known from the first, event b from the second."""
    small = SmallHome(tmp_path_factory.mktemp("sound"))
    events = [
        f'{{"id": "{name}", "title": "Listing", "date": "2026-04-01T00:00:00Z"}}' for name in "ab"
    ]
    for at, shown in ((NOW - DAY, events[:1]), (NOW, events)):
        small.land("events", at=at, body=f'{{"data": [{", ".join(shown)}]}}'.encode())
    merge(small.home)
    return small.home.root


def test_every_check_has_a_row_in_the_documentation() -> None:
    page = (ROOT / "docs/operate.md").read_text()
    for name in (*SPECS, f"{CHANGES}.{ONE_ROW_PER_VERSION}", f"{CHANGES}.{FEW_REJECTS}"):
        asset, check = name.split(".")
        assert f"\n| {asset} | `{check}` | " in page


def run_check(home: Home, spec: dg.AssetCheckSpec) -> dg.AssetCheckResult:
    (result,) = check_results(Layout(), [spec.key], home)
    return result


@pytest.mark.parametrize("name", SPECS)
def test_check_passes_for_a_sound_file_and_fails_for_a_damaged_one(
    sound: Path, tmp_path: Path, name: str
) -> None:
    spec = SPECS[name]
    assert run_check(Home(sound), spec).passed
    shutil.copytree(sound, tmp_path / "home")
    home = Home(tmp_path / "home")
    with duckdb.connect(str(home.warehouse)) as connection:
        connection.execute(DAMAGE[name])
    result = run_check(home, spec)
    assert not result.passed, result.metadata
    blocks = result.severity is dg.AssetCheckSeverity.ERROR
    assert blocks == spec.blocking
