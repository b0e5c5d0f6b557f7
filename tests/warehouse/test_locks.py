"""Locks of a home: checking a lock blocks nobody, and a holder is identified exactly."""

import fcntl
import os
import threading
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest

from almanac.core.errors import WarehouseError
from warehouse.files.locks import hold_lock, is_held, read_holder

TEST_S = 0.05


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    return tmp_path / "a.lock"


def test_a_lock_without_a_wait_is_acquired_during_a_test_of_the_lock(lock: Path) -> None:
    with hold_lock(lock, "to look"):
        pass
    with lock.open("rb") as tested:
        fcntl.flock(tested, fcntl.LOCK_SH)
        unlock_timer = threading.Timer(TEST_S, fcntl.flock, (tested.fileno(), fcntl.LOCK_UN))
        unlock_timer.start()
        with hold_lock(lock, "to work", wait_s=0):
            assert is_held(lock)
        unlock_timer.join()


@pytest.mark.parametrize("setting", ["", "ALMANAC_WAIT_S"])
def test_a_message_names_only_the_setting_that_gives_the_wait(lock: Path, setting: str) -> None:
    with ExitStack() as locks:
        locks.enter_context(hold_lock(lock, "to work"))
        with pytest.raises(WarehouseError) as caught:
            locks.enter_context(hold_lock(lock, "to work", wait_s=0, wait_setting=setting))
    assert ("sets how long to wait" in str(caught.value)) == bool(setting)
    assert setting in str(caught.value)


def test_a_holder_is_named_with_its_host_if_it_is_another(lock: Path) -> None:
    with hold_lock(lock, "to work"):
        found = read_holder(lock)
        assert found is not None
        assert found.pid == os.getpid()
        assert " on " not in str(found)
        elsewhere = msgspec.structs.replace(found, host="elsewhere")
        assert f"(pid {found.pid} on elsewhere, since" in str(elsewhere)
