"""The Iceberg tables with their catalog in PostgreSQL and their files in a bucket."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import pytest
from pyarrow import fs

from almanac.lake import Lake, open_lake
from bench.warehouse.homes import LAST_DAY, ExportPlan
from tests.lake.counting_proxy import Traffic, counting_proxy
from tests.warehouse.iceberg.conftest import HISTORY
from tests.warehouse.iceberg.tables_equal import count_differences, equal
from tests.warehouse.publish.small_lake import Op, Plan, SmallLake
from warehouse.errors import StaleWriter
from warehouse.history.merge import merge
from warehouse.home import Home
from warehouse.iceberg.publication_commit import commit_publication
from warehouse.iceberg.upkeep import find_differences, remove_orphans
from warehouse.iceberg_place import IcebergPlace
from warehouse.shared.database import SharedDatabase
from warehouse.shared.lease import hold_lease

pytestmark = pytest.mark.lake
DAYS = 365


class SharedHome:
    """A home of a small lake whose Iceberg tables are in PostgreSQL and a bucket."""

    def __init__(self, root: Path, postgres: str, bucket: str) -> None:
        self.lake = SmallLake(root)
        self.place = IcebergPlace(postgres, f"{bucket}/iceberg")
        self.home = Home(root, iceberg=self.place, database=SharedDatabase(postgres))

    def publish(self, plans: list[Plan]) -> None:
        self.lake.set_plans(plans)
        self.lake.publish()

    def commit(self) -> None:
        with self.home.merge_lock():
            report = commit_publication(self.home, self.place)
        assert report is not None
        assert report.why_failed == ""


@pytest.fixture
def shared(tmp_path: Path, postgres: str, bucket: str) -> SharedHome:
    return SharedHome(tmp_path, postgres, bucket)


def test_tables_in_a_bucket_equal_the_warehouse(shared: SharedHome, postgres: str) -> None:
    plans = list(HISTORY)
    for number in range(3):
        plans = [*plans, Plan((Op(number, "reschedule", number + 3),), coins=number)]
        shared.publish(plans)
        shared.commit()
        assert count_differences(shared.home.root, open_lake(postgres)) == equal()
    shared.publish(plans[:2])
    shared.commit()
    assert count_differences(shared.home.root, open_lake(postgres)) == equal()
    assert [*find_differences(shared.home, shared.place, deep=True)] == []
    assert remove_orphans(shared.place, datetime.now(UTC)) == []
    later = datetime.now(UTC) + timedelta(days=2)
    files, path = fs.FileSystem.from_uri(f"{shared.place.location}/events/data/stray.parquet")
    with files.open_output_stream(path) as stream:
        stream.write(b"")
    assert [orphan.path for orphan in remove_orphans(shared.place, later)] == [path]


def test_a_commit_of_a_stale_writer_is_refused_and_changes_nothing(
    shared: SharedHome, postgres: str
) -> None:
    shared.publish(HISTORY)
    shared.commit()
    before = open_lake(postgres).publication()
    shared.publish([*HISTORY, Plan((Op(4, seed=3),), coins=1)])
    database = SharedDatabase(postgres)
    with (
        hold_lease(database, "the first writer", lease_s=1) as stale,
        database.connect() as connection,
    ):
        connection.execute("UPDATE almanac.writer_lease SET until = now() - interval '1 s'")
        with hold_lease(database, "the second writer", lease_s=30):
            shared.home.lease = stale
            with pytest.raises(StaleWriter, match="took over"):
                commit_publication(shared.home, shared.place)
    shared.home.lease = None
    assert open_lake(postgres).publication() == before
    shared.commit()
    assert count_differences(shared.home.root, open_lake(postgres)) == equal()


def test_no_error_has_the_password_of_the_database(tmp_path: Path, bucket: str) -> None:
    wrong = "postgresql://writer:canary-password@127.0.0.1:1/almanac"
    lake, place = SmallLake(tmp_path), IcebergPlace(wrong, f"{bucket}/iceberg")
    lake.set_plans(HISTORY)
    lake.publish()
    report = commit_publication(Home(tmp_path, database=SharedDatabase(wrong)), place)
    assert report is not None
    assert report.why_failed
    assert "canary" not in report.why_failed
    assert "canary" not in (tmp_path / "state" / "iceberg.json").read_text()


@pytest.fixture(scope="module")
def year(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A published home with a year of exports: 25,000 versions of 5,000 events, 200 coins."""
    home = Home(tmp_path_factory.mktemp("year"))
    ExportPlan(5_000, versions=25_000, coins=200, days=DAYS, exports=DAYS // 5).land_all(home)
    merge(home)
    return home


@pytest.fixture
def counted(
    s3_server: str, bucket: str, postgres: str, year: Home, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Lake, Traffic]]:
    place = IcebergPlace(postgres, f"{bucket}/iceberg")
    (year.state / "iceberg.json").unlink(missing_ok=True)
    report = commit_publication(year, place)
    assert report is not None
    assert report.why_failed == ""
    with counting_proxy(s3_server) as traffic:
        monkeypatch.setenv("AWS_ENDPOINT_URL", traffic.address)
        yield open_lake(postgres), traffic


def test_the_history_of_one_event_is_in_two_data_files(
    counted: tuple[Lake, Traffic], year: Home
) -> None:
    lake, traffic = counted
    with duckdb.connect(str(year.warehouse), read_only=True) as connection:
        ids = connection.execute(
            "SELECT min(event_id), max_by(event_id, known_from) FROM event_versions"
        ).fetchall()[0]
    for event_id in ids:
        traffic.clear()
        history = lake.read("event_versions", row_filter=f"event_id = '{event_id}'")
        found = traffic.data_files("event_versions")
        assert history.num_rows
        assert 1 <= len(found) <= 2
    assert len(found) == 2  # The newest version is in the recent file, the others in a base file.


def test_one_day_is_the_file_of_that_day_and_little_metadata(
    counted: tuple[Lake, Traffic], year: Home
) -> None:
    lake, traffic = counted
    day = LAST_DAY - timedelta(days=100)
    traffic.clear()
    rows = lake.read(
        "event_changes",
        row_filter=f"known_from >= '{day}T00:00:00+00:00' and "
        f"known_from < '{day + timedelta(days=1)}T00:00:00+00:00'",
    )
    (file,) = traffic.data_files("event_changes")
    size = year.lake.path(f"event_changes/observed_date={day}/changes.parquet").stat().st_size
    assert rows.num_rows
    assert traffic.bytes[file] <= 1.05 * size + 65_536  # Its footer is read twice.
    assert sum(traffic.bytes.values()) <= size + 200_000
