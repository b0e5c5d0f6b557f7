"""An instance that is not the home's own: found, used, and left as it is."""

from pathlib import Path

import dagster as dg
import pytest

from pipeline.home_location import locate_home
from pipeline.instance import instance_of
from pipeline.settings import read_settings
from tests.pipeline.conftest import Almanac
from tests.pipeline.run_records import start_run
from warehouse.errors import WarehouseError
from warehouse.home import Home


def elsewhere(root: Path, text: str = "telemetry: {enabled: false}\n") -> Home:
    """Return a home with the instance of a company, which has this `dagster.yaml`."""
    folder = root / "company"
    folder.mkdir()
    (folder / "dagster.yaml").write_text(text)
    home = Home(root / "home", dagster_home=folder)
    home.claim("sandbox:1")
    return home


def test_it_gets_the_records_and_no_config_of_almanac(tmp_path: Path) -> None:
    home = elsewhere(tmp_path)
    run_id = start_run(home, "")
    with dg.DagsterInstance.from_config(str(home.instance_folder)) as company:
        assert company.get_run_by_id(run_id) is not None
    text = (home.instance_folder / "dagster.yaml").read_text()
    assert text == "telemetry: {enabled: false}\n"
    assert not home.dagster.exists()


def test_a_missing_folder_is_an_error_that_names_the_setting(tmp_path: Path) -> None:
    home = Home(tmp_path / "home", dagster_home=tmp_path / "nowhere")
    with pytest.raises(WarehouseError, match=r"DAGSTER_HOME.*nowhere"), instance_of(home):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("storage: {postgres: {postgres_db: {hostname: {env: NO_SUCH_NAME}}}}", "db_name"),
        ("storage: {custom: {module: no_such_module, class: Storage, config: {}}}", "no_such"),
        ("storage: [", "line 1"),
        ("run_queue: {max_concurrent_runs: many}", "many"),
    ],
)
def test_a_config_that_cannot_be_used_is_one_message_with_its_path(
    tmp_path: Path, text: str, what: str
) -> None:
    home = elsewhere(tmp_path, text)
    with pytest.raises(WarehouseError, match=what) as caught, instance_of(home):
        pass
    assert str(home.instance_folder) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["history/runs.db", "history/runs/index.db"])
def test_a_damaged_database_is_one_message_and_moved_away_it_is_made_again(
    tmp_path: Path, name: str
) -> None:
    home = Home(tmp_path / "home")
    start_run(home, "")
    (home.dagster / name).write_bytes(b"no database" * 1000)
    with pytest.raises(WarehouseError, match=r"move this folder away"):  # noqa: SIM117
        with instance_of(home) as instance:
            instance.get_asset_keys()
    home.dagster.rename(tmp_path / "aside")
    assert start_run(home, "")


@pytest.mark.usefixtures("almanac")
def test_dagster_home_names_the_instance_and_an_empty_text_means_the_homes_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for given, folder in (
        (str(tmp_path / "company"), tmp_path / "company"),
        ("company", tmp_path / "company"),
        ("", Path("data/dagster")),
    ):
        monkeypatch.setenv("DAGSTER_HOME", given)
        assert locate_home(read_settings()).instance_folder == folder


@pytest.mark.usefixtures("almanac")
def test_a_received_env_file_does_not_name_it(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("DAGSTER_HOME=/elsewhere\n")
    assert locate_home(read_settings()).instance_folder == Path("data/dagster")


def test_a_command_reports_a_damaged_database_in_one_line(tmp_path: Path, almanac: Almanac) -> None:
    home = Home(tmp_path / "home")
    home.claim("sandbox:1")
    (home.dagster / "history").mkdir(parents=True)
    (home.dagster / "history/runs.db").write_bytes(b"no database" * 1000)
    done = almanac("run", "--days", "1", home=str(home.root), code=1)
    assert len(done.stderr.strip().splitlines()) == 1
    assert "Dagster's records of runs can't be used" in done.stderr
