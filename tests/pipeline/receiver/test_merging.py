"""The thread that merges in the receiver's process."""

import os
import sys
import threading
from pathlib import Path

import pytest

from pipeline.receiver import merging
from pipeline.receiver.merging import MergeThread
from resources.inbox.deliveries import WaitingDeliveries, waiting_deliveries
from tests.hangs import HANGS_AFTER_S
from warehouse.clock import utc_now
from warehouse.home import Home


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere threads have no priority")
def test_a_merge_leaves_the_processor_to_receipt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    priorities: list[int] = []
    looked = threading.Event()

    def look(home: Home) -> WaitingDeliveries:
        priorities.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
        looked.set()
        return waiting_deliveries(home)

    monkeypatch.setattr(merging, "waiting_deliveries", look)
    thread = MergeThread(Home(tmp_path), utc_now)
    thread.start()
    try:
        assert looked.wait(HANGS_AFTER_S)
    finally:
        thread.stop()
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert priorities[0] == min(own + 10, 19)
