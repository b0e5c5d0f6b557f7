"""Brings the batches of one landing into a home one by one, in any order.

Belongs here: the files of a batch as landing keeps them. Does not: which batches, when they are
merged.
"""

import shutil
from collections.abc import Iterable
from pathlib import Path

from warehouse.home import Home


def home_with_bodies(landing_root: Path, root: Path) -> Home:
    """Return a home that has every body of a landing and no batch yet."""
    shutil.copytree(landing_root / "bodies", root / "landing" / "bodies")
    return Home(root)


def bring(landing_root: Path, home: Home, batch_ids: Iterable[str]) -> None:
    """Land batches: for each its marker, then its manifest. What is there stays as it is."""
    for batch_id in batch_ids:
        day = f"{batch_id[:4]}-{batch_id[4:6]}-{batch_id[6:8]}"
        manifest = Path("batches") / day / f"{batch_id}.json"
        target = home.root / "landing"
        (target / "pending").mkdir(parents=True, exist_ok=True)
        (target / "pending" / f"{batch_id}.json").write_bytes(b"{}")
        (target / manifest).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(landing_root / manifest, target / manifest)
