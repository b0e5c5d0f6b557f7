"""An instance that is not the home's own: found, used, and left as it is."""

import sqlite3
from pathlib import Path

import dagster as dg
import pytest
import yaml

from pipeline.health.doctor import check_runs
from pipeline.home_location import locate_home
from pipeline.instance import config, instance_of, write_config
from pipeline.runs.dead_runs import ANNOUNCED_WITHIN, find_dead_runs
from pipeline.runs.place import generate, place_of
from pipeline.runs.store import INDEX, RUNS
from pipeline.settings import read_settings
from tests.pipeline.conftest import Almanac
from tests.pipeline.homes.run_records import dies_with, run_of, status_of
from warehouse.clock import utc_now
from warehouse.errors import RunRecordsDamaged, RunRecordsUnusable
from warehouse.home import Home

STORAGES = {
    "run_storage": ("dagster._core.storage.runs", "SqliteRunStorage", "runs"),
    "event_log_storage": ("dagster._core.storage.event_log", "SqliteEventLogStorage", "events"),
    "schedule_storage": ("dagster._core.storage.schedules", "SqliteScheduleStorage", "ticks"),
}


def elsewhere(root: Path, text: str = "telemetry: {enabled: false}\n") -> Home:
    """Return a home with the instance of a company, which has this `dagster.yaml`."""
    folder = root / "company"
    folder.mkdir()
    (folder / "dagster.yaml").write_text(text)
    home = Home(root / "home", dagster_home=folder)
    home.claim("sandbox:1")
    return home


def other_storage(folder: Path) -> str:
    """Return a `dagster.yaml` with a storage that Almanac does not read by itself."""
    return yaml.safe_dump(
        {
            name: {"module": module, "class": kind, "config": {"base_dir": str(folder / where)}}
            for name, (module, kind, where) in STORAGES.items()
        }
    )


class TestAnInstanceElsewhere:
    def test_it_gets_the_records_and_neither_config_nor_databases_of_almanac(
        self, tmp_path: Path
    ) -> None:
        home = elsewhere(tmp_path)
        run_id = run_of(home)
        with dg.DagsterInstance.from_config(str(home.instance_folder)) as company:
            assert company.get_run_by_id(run_id) is not None
        assert {path.name for path in home.instance_folder.iterdir()} >= {"history", "schedules"}
        text = (home.instance_folder / "dagster.yaml").read_text()
        assert text == "telemetry: {enabled: false}\n"
        assert not home.dagster.exists()

    def test_a_folder_without_a_config_gets_none(self, tmp_path: Path) -> None:
        (tmp_path / "company").mkdir()
        with instance_of(Home(tmp_path / "home", dagster_home=tmp_path / "company")) as instance:
            assert instance.get_runs_count() == 0
        assert not (tmp_path / "company" / "dagster.yaml").exists()

    def test_a_missing_folder_is_an_error_that_names_the_setting(self, tmp_path: Path) -> None:
        home = Home(tmp_path / "home", dagster_home=tmp_path / "nowhere")
        with pytest.raises(RunRecordsUnusable, match=r"DAGSTER_HOME.*nowhere"), instance_of(home):
            pass
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize(
        ("text", "what"),
        [
            ("storage: {postgres: {postgres_db: {hostname: {env: NO_SUCH_NAME}}}}", "db_name"),
            ("storage: {custom: {module: no_such_module, class: Storage, config: {}}}", "no_such"),
            ("storage: [", "not valid YAML"),
            ("run_queue: {max_concurrent_runs: many}", "many"),
        ],
    )
    def test_a_config_that_cannot_be_used_is_one_message_with_its_path(
        self, tmp_path: Path, text: str, what: str
    ) -> None:
        home = elsewhere(tmp_path, text)
        with pytest.raises(RunRecordsUnusable, match=what) as caught, instance_of(home):
            pass
        assert str(home.instance_folder / "dagster.yaml") in str(caught.value)
        assert "\n" not in str(caught.value)

    def test_its_damaged_database_is_reported_and_left_where_it_is(self, tmp_path: Path) -> None:
        home = elsewhere(tmp_path)
        run_of(home)
        path = home.instance_folder / RUNS
        with sqlite3.connect(path) as store:
            store.execute("DROP TABLE bulk_actions")
        before = path.read_bytes()
        with pytest.raises(RunRecordsDamaged, match=r"runs\.db"), instance_of(home):
            pass
        (checked,) = check_runs(home, fix=True)
        assert not checked.holds
        assert path.read_bytes() == before


class TestDagsterHome:
    @pytest.mark.usefixtures("almanac")
    def test_it_names_the_instance_and_an_empty_text_means_the_homes_own(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for given, folder in (
            (str(tmp_path / "company"), tmp_path / "company"),
            ("company", tmp_path / "company"),
            ("", Path("data/dagster")),
        ):
            monkeypatch.setenv("DAGSTER_HOME", given)
            assert locate_home(read_settings()).instance_folder == folder

    @pytest.mark.usefixtures("almanac")
    def test_a_received_env_file_does_not_name_it(self, tmp_path: Path) -> None:
        (tmp_path / ".env").write_text("DAGSTER_HOME=/elsewhere\n")
        assert locate_home(read_settings()).instance_folder == Path("data/dagster")

    def test_a_home_without_records_of_its_own_is_checked_and_shown(
        self, tmp_path: Path, almanac: Almanac, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        home = elsewhere(tmp_path)
        run_of(home)
        monkeypatch.setenv("DAGSTER_HOME", str(home.instance_folder))
        found = almanac("doctor", "--json", home=str(home.root)).output
        assert f"sound, in {home.instance_folder}" in found


class TestRunsOfOthers:
    def test_a_run_that_almanac_announced_is_failed_once_its_process_is_gone(
        self, tmp_path: Path
    ) -> None:
        home = elsewhere(tmp_path)
        run_id = run_of(home)
        dies_with(home, run_id)
        assert [check.holds for check in check_runs(home, fix=True)] == [True, True]
        assert status_of(home, run_id) == "FAILURE"

    def test_a_run_of_another_location_is_never_failed(self, tmp_path: Path) -> None:
        for home in (Home(tmp_path / "own"), elsewhere(tmp_path)):
            run_id = run_of(home, location="company")
            assert watched_to_the_end(home) == []
            assert status_of(home, run_id) == "STARTED"

    def test_in_a_shared_instance_dagster_decides_what_may_still_start(
        self, tmp_path: Path
    ) -> None:
        home = elsewhere(tmp_path)
        run_of(home)
        assert watched_to_the_end(home) == []


class TestAnotherStorage:
    def test_dead_runs_are_found_and_failed_in_it(self, tmp_path: Path) -> None:
        home = elsewhere(tmp_path, other_storage(tmp_path / "elsewhere"))
        assert place_of(home).databases is None
        assert [check.holds for check in check_runs(home, fix=True)] == [True, True]
        run_id = run_of(home)
        dies_with(home, run_id)
        assert [check.holds for check in check_runs(home, fix=False)] == [True, False]
        assert [check.holds for check in check_runs(home, fix=True)] == [True, True]
        assert status_of(home, run_id) == "FAILURE"
        assert not (home.instance_folder / INDEX).exists()
        assert list((home.dagster / "running").iterdir()) == []

    def test_in_the_folder_of_the_home_it_is_used_too(self, tmp_path: Path) -> None:
        home = Home(tmp_path / "home")
        home.dagster.mkdir(parents=True)
        (home.dagster / "dagster.yaml").write_text(other_storage(tmp_path / "elsewhere"))
        run_id = run_of(home)
        assert status_of(home, run_id) == "STARTED"
        assert not (home.dagster / RUNS).exists()
        assert (tmp_path / "elsewhere/runs/runs.db").exists()


class TestGeneratedFiles:
    def test_a_file_that_a_person_changed_is_kept_and_doctor_says_so(self, tmp_path: Path) -> None:
        home = Home(tmp_path)
        with instance_of(home):
            pass
        path = home.dagster / "dagster.yaml"
        path.write_text(path.read_text().replace("max_retries: 3", "max_retries: 9"))
        before = path.read_bytes()
        with instance_of(home) as instance:
            assert instance.run_retries_max_retries == 9
        assert write_config(home) == "kept"
        assert path.read_bytes() == before
        (records, _) = check_runs(home, fix=False)
        assert "was changed by a person, and is kept" in records.found

    def test_a_file_that_nobody_changed_is_updated(self, tmp_path: Path) -> None:
        path = tmp_path / "dagster.yaml"
        assert generate(path, "nux: {enabled: true}\n") == "written"
        assert generate(path, "nux: {enabled: true}\n") == "unchanged"
        assert generate(path, "nux: {enabled: false}\n") == "written"
        assert yaml.safe_load(path.read_text()) == {"nux": {"enabled": False}}

    @pytest.mark.parametrize(
        ("there", "result"),
        [
            ("# Generated by Almanac; changes are overwritten.\nnux: {}\n", "written"),
            ("nux: {}\n", "kept"),
            ("", "kept"),
        ],
    )
    def test_a_file_of_an_earlier_version_is_updated_and_one_of_a_person_kept(
        self, tmp_path: Path, there: str, result: str
    ) -> None:
        path = tmp_path / "workspace.yaml"
        path.write_text(there)
        assert generate(path, "load_from: []\n") == result
        assert (path.read_text() == there) is (result == "kept")

    def test_a_home_that_was_moved_uses_its_databases_where_they_are_now(
        self, tmp_path: Path
    ) -> None:
        home = Home(tmp_path / "before")
        run_id = run_of(home)
        home.root.rename(tmp_path / "after")
        assert status_of(Home(tmp_path / "after"), run_id) == "STARTED"
        assert "base_dir" not in yaml.safe_dump(config())


def watched_to_the_end(home: Home) -> list[str]:
    """Return the runs that are dead long after any start."""
    with instance_of(home) as instance:
        late = utc_now() + 10 * ANNOUNCED_WITHIN
        return [run.run_id for run in find_dead_runs(home, instance, late)]
