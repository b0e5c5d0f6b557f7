"""Problems of landed batches: partial, flagged, quarantined, with the API key in a response,
without a plausible Date, or damaged after landing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from warehouse.home import Home
from warehouse.landing.batches import Feed, Manifest, parse_feed

Kind = Literal["partial", "flagged", "quarantined", "key", "undated", "damaged"]
_REPEATED: Final = (
    "the service repeated the API key in its response; it was removed before anything was stored"
)
FAILED: Final = "reading or folding it failed: "
"""The start of the reason if a whole batch failed. A release would only repeat the failure."""


@dataclass(frozen=True, slots=True)
class BatchProblem:
    """One problem of a batch.

    A batch has at most one problem of its data, the worst. The API key in a response and a missing
    plausible Date are separate problems.
    """

    batch_id: str
    feed: Feed
    kind: Kind
    why: str

    @property
    def is_of_data(self) -> bool:
        return self.kind not in ("key", "undated")

    def __str__(self) -> str:
        """Return one line: the kind, the batch, the reason and what follows."""
        reason = " ".join(self.why.split()).rstrip(".")
        return f"{self.kind.capitalize()}: {self.batch_id}: {reason}. {self._what_follows}"

    @property
    def _what_follows(self) -> str:
        match self.kind:
            case "partial":
                return "The received rows are kept; the missing part counts as not pulled."
            case "flagged":
                return f"If it is correct: almanac batches release {self.batch_id}"
            case "quarantined" if has_failed(self.batch_id, self.why):
                return "A release does not help; with a version that can read it: almanac rebuild"
            case "quarantined":
                return f"To merge its readable rows anyway: almanac batches release {self.batch_id}"
            case "damaged":
                return "It is left out of the warehouse until then."
            case "key":
                return "Report this to the service, and request a new key."
            case "undated":
                return "It is merged with that time."


class EmptyBatch(BatchProblem):
    """A quarantined batch in which no row can be read, such as a page of HTML."""

    __slots__ = ()

    @property
    def _what_follows(self) -> str:
        return (
            "Leave it: it has no readable row, and a release could make all events of its scope "
            "missing."
        )


def list_record_problems(record: Mapping[str, Any]) -> list[BatchProblem]:
    batch_id, feed = record["batch_id"], record["feed"]
    others = [
        *_repeated(batch_id, feed, record.get("redacted", 0)),
        *_undated(batch_id, feed, record["date_doubt"]),
    ]
    if record["status"] == "quarantined":
        why = record["why"] or ""
        # The counts of a batch that failed are 0, whatever it has.
        kind = BatchProblem if record["good"] or has_failed(batch_id, why) else EmptyBatch
        return [kind(batch_id, feed, "quarantined", why), *others]
    # A partial export is flagged as well, for the same reason.
    if not record["complete"]:
        return [BatchProblem(batch_id, feed, "partial", record["why_incomplete"] or ""), *others]
    if record["flagged"]:
        return [BatchProblem(batch_id, feed, "flagged", record["flagged"]), *others]
    return others


def has_failed(batch_id: str, why: str) -> bool:
    """Whether a batch failed as a whole; `why` is the reason of its quarantine."""
    return why.startswith((FAILED, f"batch {batch_id}: "))


def list_landed_problems(manifests: Iterable[Manifest]) -> list[BatchProblem]:
    found: list[BatchProblem] = []
    for manifest in manifests:
        batch_id, feed = manifest.batch_id, manifest.feed
        if not manifest.complete:
            found.append(BatchProblem(batch_id, feed, "partial", manifest.why_incomplete or ""))
        found += _repeated(batch_id, feed, manifest.redacted)
        found += _undated(batch_id, feed, manifest.date_doubt)
    return found


def list_damaged_problems(damaged: Mapping[str, str]) -> list[BatchProblem]:
    """Return the problems of batches that are set aside; `damaged` has the reason for each id."""
    return [
        BatchProblem(batch_id, parse_feed(batch_id), "damaged", why)
        for batch_id, why in damaged.items()
    ]


def _repeated(batch_id: str, feed: Feed, count: int) -> list[BatchProblem]:
    return [BatchProblem(batch_id, feed, "key", _REPEATED)] if count else []


def _undated(batch_id: str, feed: Feed, doubt: str | None) -> list[BatchProblem]:
    return [BatchProblem(batch_id, feed, "undated", doubt)] if doubt else []


def list_new_problems(
    home: Home, known: Iterable[str], records: Iterable[Mapping[str, Any]]
) -> list[BatchProblem]:
    """Return the problems of the batches of a home except the known ones, in order of landing.

    `records` are the accounts of the merged batches of their days; a batch without one is not
    merged yet.
    """
    merged = {record["batch_id"]: record for record in records}
    before = set(known)
    found: list[BatchProblem] = []
    for batch_id in home.landing.batch_ids():
        if batch_id in before:
            continue
        record = merged.get(batch_id)
        if record is not None:
            found += list_record_problems(record)
        else:
            manifests, damaged = home.landing.readable([batch_id])
            found += [*list_landed_problems(manifests), *list_damaged_problems(damaged)]
    return found
