"""Assertions about a home right after a kill, and after the next merge.

Belongs here: these assertions, and the count of kills that hit a phase. Does not: choosing where to
kill.
"""

import shutil
from collections import Counter
from collections.abc import Iterable, Sequence

from tests.crashes.conftest import Kill, Prepared
from tests.crashes.tables import Digests, an_hour_passes, published, read_every_file, whole
from warehouse import queries
from warehouse.history.merge import merge
from warehouse.home import Home
from warehouse.landing.landing import Landing

PHASES = ("land", "merge", "publish")


class Hits(Counter[str]):
    """Kills by the phase in which they happened, from the witness file on disk."""

    def summary(self) -> str:
        return (
            "kills that hit: " + ", ".join(f"{self[phase]} in {phase}" for phase in PHASES) + "\n"
        )


def readable(home: Home, *states: Digests) -> None:
    """Assert that a reader can read everything now, and sees exactly one of the states."""
    read_every_file(home)
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
    with queries.connected(home.warehouse) as connection:
        rows = connection.execute("SELECT batch_id FROM batches").fetchall()
    assert len(rows) == len(set(rows))
    return {batch_id for (batch_id,) in rows}


def assert_repaired(home: Home, prepared: Prepared) -> None:
    """Assert that the next merge gives the same result as a home that was never killed."""
    an_hour_passes(home)
    merge(home)
    assert whole(home) == prepared.after
    assert merge(home).days == []


def kill_at_points(
    home: Home, killer: Kill, points: Iterable[tuple[str, int]], states: Sequence[Digests]
) -> Hits:
    """Kill merges one after the other, each at a point; none is skipped."""
    hits = Hits()
    for point, nth in points:
        death = killer(home, "merge", point=point, nth=nth)
        assert (death.killed, death.point) == (True, point), (point, nth, death)
        hits[death.phase] += 1
        readable(home, *states)
    return hits


def kill_at_random(
    home: Home, killer: Kill, work: str, phase: str, *, within_s: float, seed: int, **more: object
) -> bool:
    """Kill once at a random moment; return whether the phase was in progress."""
    death = killer(home, work, phase=phase, within_s=within_s, seed=seed, **more)
    return death.killed and death.phase == phase


def remove_home(home: Home) -> None:
    shutil.rmtree(home.root)
    witness = home.root.with_suffix(".witness")
    if witness.exists():
        shutil.rmtree(witness)
