"""Lands the batches of one landing again: one by one, in any order, or with fewer rows."""

import csv
import io
import json
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from warehouse.home import Home
from warehouse.landing.batches import Manifest, Pull
from warehouse.landing.landing import Landing

Cut = Callable[[Landing, Landing, Manifest], tuple[Manifest, int]]
"""Copies a batch from one landing to another; returns the new batch and its number of rows."""


def first_page_only(source: Landing, target: Landing, manifest: Manifest) -> tuple[Manifest, int]:
    """Land the first page of a list as a partial batch."""
    _, body = next(source.pages(manifest))
    pull = msgspec.structs.replace(_pull_of(manifest), why_incomplete="the quota ran out")
    return target.land(pull, [(body, None)]), len(json.loads(body)["data"])


def with_rows(share: float, *, claimed: float | None = None) -> Cut:
    """Return a function that lands a share of an export's rows as a complete export."""

    def cut(source: Landing, target: Landing, manifest: Manifest) -> tuple[Manifest, int]:
        text = b"".join(source.body(manifest)).decode()
        header, *rows = csv.reader(io.StringIO(text, newline=""))
        kept = rows[: int(len(rows) * share)]
        out = io.StringIO(newline="")
        csv.writer(out, lineterminator="\r\n").writerows([header, *kept])
        claim = None if claimed is None else int(len(rows) * claimed)
        pull = msgspec.structs.replace(_pull_of(manifest), rows_claimed=claim)
        return target.land(pull, [(out.getvalue().encode(), None)]), len(kept)

    return cut


def _pull_of(manifest: Manifest) -> Pull:
    return Pull(**{name: getattr(manifest, name) for name in Pull.__struct_fields__})


def home_with_bodies(landing_root: Path, root: Path) -> Home:
    """Return a home that has every body of a landing, and no batch."""
    shutil.copytree(landing_root / "bodies", root / "landing" / "bodies")
    return Home(root)


def land_again(landing_root: Path, home: Home, batch_ids: Iterable[str]) -> None:
    """Land batches: for each its marker, then its manifest. Existing files stay."""
    for batch_id in batch_ids:
        day = f"{batch_id[:4]}-{batch_id[4:6]}-{batch_id[6:8]}"
        manifest = Path("batches") / day / f"{batch_id}.json"
        target = home.root / "landing"
        (target / "pending").mkdir(parents=True, exist_ok=True)
        (target / "pending" / f"{batch_id}.json").write_bytes(b"{}")
        (target / manifest).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(landing_root / manifest, target / manifest)
