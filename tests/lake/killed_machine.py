"""A program that lands days and merges on a machine, and kills itself at a step.

Steps are before and after each upload, each transaction of the index and each rename on the disk.
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.lake.machines import Machines
from tests.warehouse.landed_days import land
from warehouse.files.storage import Storage
from warehouse.history.merge import merge
from warehouse.shared.bucket import Bucket
from warehouse.shared.file_index import FileIndex
from warehouse.shared.local_index import LocalIndex


class Killer:
    """Counts the steps, and kills the process at one of them; 0 never."""

    def __init__(self, at: int) -> None:
        self.count = 0
        self._at = at

    def step(self) -> None:
        self.count += 1
        if self.count == self._at:
            os.kill(os.getpid(), signal.SIGKILL)

    def watch(self, owner: type, name: str) -> None:
        work: Callable[..., Any] = getattr(owner, name)

        def stepping(*args: Any, **options: Any) -> Any:
            self.step()
            result = work(*args, **options)
            self.step()
            return result

        setattr(owner, name, stepping)


def main() -> None:
    folder, bucket, postgres, machine, days, at = sys.argv[1:]
    killer = Killer(int(at))
    for owner, name in (
        (Bucket, "put"),
        (FileIndex, "write"),
        (Storage, "adopt"),
        (Storage, "remove"),
        (LocalIndex, "record"),
    ):
        killer.watch(owner, name)
    home = Machines(Path(folder), bucket, postgres, lease_s=1).home(machine)
    home.catch_up()
    home.claim("s")
    for day in range(int(days)):
        land(home, day)
    merge(home)
    print(json.dumps({"steps": killer.count}))  # noqa: T201


if __name__ == "__main__":
    main()
