"""Pullers for the tests, and the batches that they land."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from catalog.contract.plans import ENTERPRISE
from resources.http.client import CatalogClient
from resources.ingest.puller import Puller
from warehouse.landing.batches import Manifest
from warehouse.landing.landing import Landing

AT = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
"""The time of the sandbox."""
SOURCE = "sandbox:1"
MACHINE_AT = datetime(2026, 3, 2, 11, 58, 30, 250_000, tzinfo=UTC)
"""The machine's clock of the tests is behind the service's."""


def puller_of(client: CatalogClient, root: Path, **options: Any) -> Puller:
    options.setdefault("plan", ENTERPRISE)
    options.setdefault("source", SOURCE)
    options.setdefault("clock", lambda: MACHINE_AT)
    landing = options.pop("landing", None) or Landing(root)
    return Puller(client, landing, **options)


def rows_of(landing: Landing, manifest: Manifest) -> list[dict[str, Any]]:
    """Return the rows of a landed list, page after page."""
    return [row for _, body in landing.pages(manifest) for row in msgspec.json.decode(body)["data"]]


def all_manifests(root: Path) -> list[Manifest]:
    landing = Landing(root)
    return [landing.manifest(batch_id) for batch_id in landing.batch_ids()]
