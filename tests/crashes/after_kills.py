"""Assertions about a home right after a kill, and after the next merge."""

from tests.crashes.conftest import Prepared
from tests.crashes.tables import Digests, an_hour_passes, partitions, published, whole
from tests.reading import ask
from warehouse.history.merge import merge
from warehouse.home import Home
from warehouse.landing.landing import Landing


def readable(home: Home, *states: Digests) -> None:
    """Assert that a reader can read everything now, and sees exactly one of the states."""
    partitions(home)
    if home.warehouse.exists():
        assert published(home.warehouse) in states


def intact_batches(landing: Landing) -> set[str]:
    """Assert that all landed batches are complete; return their ids."""
    ids = set(landing.batch_ids())
    for batch_id in ids:
        manifest = landing.manifest(batch_id)
        assert len(list(landing.pages(manifest))) == len(manifest.pages)
    assert set(landing.pending()) <= ids
    return ids


def landed_files(home: Home) -> dict[str, bytes]:
    """Return the bytes of every finished file of landing, by name."""
    storage = home.landing.storage
    folders = ("bodies", "batches", "pending")
    return {name: storage.read(name) for folder in folders for name in storage.names(folder)}


def merged(home: Home) -> set[str]:
    """Return the batches that took effect according to the tables."""
    rows = ask(home, "SELECT batch_id FROM batches")
    assert len(rows) == len(set(rows))
    return {batch_id for (batch_id,) in rows}


def assert_repaired(home: Home, prepared: Prepared) -> None:
    """Assert that the next merge gives the same result as a home that was never killed."""
    an_hour_passes(home)
    merge(home)
    assert whole(home) == prepared.after
    assert not merge(home).is_published
