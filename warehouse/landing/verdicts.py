"""What a person decided on a batch beyond a release: to take it back, or to leave the batch out.

    landing/released/….json     landing/dismissed/….json

Belongs here: the markers. Does not: what a merge makes of them (history/merge.py), the warnings
(pipeline/health).
"""

from warehouse.landing.landing import MARKER, Landing


def take_back(landing: Landing, batch_id: str) -> None:
    """No longer trust a released batch: the next merge folds its day again without the release.

    Raises:
        UnknownBatch: there is none with that id.
    """
    landing.manifest(batch_id)
    # In this order: a batch that waits and was merged as released was taken back.
    landing.storage.put(f"pending/{batch_id}.json", MARKER)
    landing.storage.remove(f"released/{batch_id}.json")


def dismissed(landing: Landing) -> set[str]:
    """Return the ids of quarantined batches that need no warning."""
    return set(landing.marked("dismissed"))


def dismiss(landing: Landing, batch_id: str, *, undo: bool = False) -> None:
    """Warn of a quarantined batch no longer, or again. Its rows stay out of history.

    Raises:
        UnknownBatch: there is none with that id.
    """
    landing.manifest(batch_id)
    name = f"dismissed/{batch_id}.json"
    if undo:
        landing.storage.remove(name)
    else:
        landing.storage.put(name, MARKER)
