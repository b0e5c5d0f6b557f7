"""What became of a pull."""

from dataclasses import dataclass

from resources.errors import Defer
from warehouse.batches import Manifest, Scope


@dataclass(frozen=True, slots=True)
class Landed:
    """A pull that is in landing, whole or in part (`manifest.complete`).

    `requests` counts what this process and an earlier one paid for (of an earlier one, its
    pages alone). `rows` arrived, duplicates among them. `resumed_pages` were in the journal.
    `left_over` is what was asked and is not paged yet, to be pulled as a new batch; None when
    the pull came to its end. `deferred` says when the service will answer again.
    """

    manifest: Manifest
    requests: int
    rows: int
    resumed_pages: int = 0
    deferred: Defer | None = None
    left_over: Scope | None = None
    warnings: tuple[str, ...] = ()
