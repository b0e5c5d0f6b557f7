"""The writer lease and its fence, in a real database; each writer has connections of its own."""

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.hangs import HANGS_AFTER_S
from warehouse.errors import LockHeld, StaleWriter
from warehouse.home import Home
from warehouse.shared.database import SharedDatabase
from warehouse.shared.lease import Lease, hold_lease, read_lease

pytestmark = pytest.mark.lake


@pytest.fixture
def database(postgres: str) -> SharedDatabase:
    return SharedDatabase(postgres)


def make_table(database: SharedDatabase, lease: Lease) -> None:
    """Create a table under the same fence as the catalog's."""
    with lease.connect() as connection:
        connection.execute("CREATE TABLE iceberg_tables (value integer)")
        database.fence(connection)


def commit(database: SharedDatabase, connection: Any, value: int) -> None:
    with database.translating_errors():
        connection.execute("INSERT INTO iceberg_tables VALUES (%s)", (value,))


def values(database: SharedDatabase) -> list[int]:
    with database.connect() as connection:
        rows = connection.execute("SELECT value FROM iceberg_tables ORDER BY value").fetchall()
    return [value for (value,) in rows]


def test_each_writer_raises_the_epoch(database: SharedDatabase) -> None:
    assert read_lease(database) is None
    for epoch in (1, 2, 3):
        with hold_lease(database, "a") as lease:
            assert (lease.epoch, lease.waited) == (epoch, False)
            state = read_lease(database)
            assert state is not None and state.is_held and state.epoch == epoch
    state = read_lease(database)
    assert state is not None and state.is_released and not state.is_held


def test_a_second_machine_waits_for_the_lease(database: SharedDatabase) -> None:
    refusal = r"another machine writes: `.*` \(pid \d+ on .*epoch 1"
    with hold_lease(database, "a"), pytest.raises(LockHeld, match=refusal):
        hold_lease(database, "b", wait_s=0.5, wait_setting="ALMANAC_WAIT_S").__enter__()
    with hold_lease(database, "b") as lease:
        assert lease.epoch == 2


def test_a_restarted_program_of_the_same_home_takes_over_without_a_wait(
    database: SharedDatabase,
) -> None:
    first = hold_lease(database, "a")
    first.__enter__()
    with hold_lease(database, "a", wait_s=0.0) as lease:
        assert lease.epoch == 2


def test_a_commit_of_a_stale_writer_is_refused(database: SharedDatabase) -> None:
    with hold_lease(database, "a") as stale:
        make_table(database, stale)
        with stale.connect() as connection:
            commit(database, connection, 1)
            with hold_lease(database, "a") as current:
                with pytest.raises(StaleWriter, match=r"epoch 1.*took over with epoch 2"):
                    commit(database, connection, 2)
                with current.connect() as own:
                    commit(database, own, 3)
            stale.renew()
            with pytest.raises(StaleWriter, match="this writer had the lease with epoch 1"):
                stale.check()
    assert values(database) == [1, 3]


def test_a_session_without_a_lease_is_refused(database: SharedDatabase) -> None:
    with hold_lease(database, "a") as lease:
        make_table(database, lease)
    with database.connect() as connection:
        for text in ("DELETE FROM iceberg_tables", "TRUNCATE iceberg_tables"):
            with pytest.raises(StaleWriter, match="no lease"), database.translating_errors():
                connection.execute(text.encode())
    assert values(database) == []


def test_a_lease_that_ended_is_refused_until_it_is_renewed(database: SharedDatabase) -> None:
    with hold_lease(database, "a", lease_s=3600) as lease:
        make_table(database, lease)
        with database.connect() as other, lease.connect() as connection:
            other.execute("UPDATE almanac.writer_lease SET until = clock_timestamp()")
            with pytest.raises(StaleWriter, match=r"\(epoch 1\) ended at"):
                commit(database, connection, 1)
            lease.renew()
            commit(database, connection, 2)
    assert values(database) == [2]


def test_a_takeover_waits_for_a_commit_in_progress(database: SharedDatabase) -> None:
    with hold_lease(database, "a", lease_s=30) as lease:
        make_table(database, lease)
        taken = threading.Event()

        def take_over() -> None:
            with hold_lease(database, "a"):
                taken.set()

        other = threading.Thread(target=take_over)
        with lease.connect() as connection, connection.transaction():
            commit(database, connection, 1)
            other.start()
            assert not taken.wait(1.0)
        assert taken.wait(HANGS_AFTER_S)
        other.join()
    assert values(database) == [1]


def test_a_stopped_transaction_does_not_keep_the_lease(database: SharedDatabase) -> None:
    """A process that is stopped between its commit's statement and its end holds the lock."""
    import psycopg

    with hold_lease(database, "a", lease_s=1) as lease, lease.connect() as connection:
        make_table(database, lease)
        with pytest.raises(psycopg.Error), connection.transaction():
            commit(database, connection, 1)
            with hold_lease(database, "a", wait_s=20) as current:
                assert current.epoch == 2
    assert values(database) == []


def test_the_lease_is_renewed_while_it_is_held(database: SharedDatabase) -> None:
    with hold_lease(database, "a", lease_s=1) as lease:
        time.sleep(2.5)
        lease.check()
        state = read_lease(database)
        assert state is not None and state.is_held and state.epoch == 1


def test_a_merge_of_a_home_holds_the_lease(database: SharedDatabase, tmp_path: Path) -> None:
    home = Home(tmp_path / "home", database=database, lease_s=5)
    with home.merge_lock() as waited:
        assert not waited and home.lease is not None and home.lease.epoch == 1
        home.check_lease()
        other = Home(tmp_path / "other", database=database, wait_s=0.5)
        with pytest.raises(LockHeld), other.merge_lock():
            pass
    assert home.lease is None
