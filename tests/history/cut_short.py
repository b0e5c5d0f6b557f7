"""Lands a pull again with less than came: a list of which one page came, an export that lacks rows.

Belongs here: what a look that was cut short leaves in landing. Does not: when that happens.
"""

import csv
import io
import json
from collections.abc import Callable

import msgspec

from warehouse.batches import Manifest
from warehouse.landing import Landing, Pull

Cut = Callable[[Landing, Landing, Manifest], tuple[Manifest, int]]
"""From one landing to another; returns the batch landed there and how many rows it has."""


def first_page_only(source: Landing, target: Landing, manifest: Manifest) -> tuple[Manifest, int]:
    """Land the first page of a list as a partial batch."""
    _, body = next(source.pages(manifest))
    pull = msgspec.structs.replace(_pull_of(manifest), why_incomplete="the quota ran out")
    return target.land(pull, [(body, None)]), len(json.loads(body)["data"])


def with_rows(share: float, *, claimed: float | None = None) -> Cut:
    """Return what lands a share of an export's rows as a whole one, with a claim or without."""

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
