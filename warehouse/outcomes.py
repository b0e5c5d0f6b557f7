"""What became of a batch when it was folded: kept in the file of its day, shown in `batches`."""

from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any, Literal

from warehouse.batches import Manifest
from warehouse.normalise import Normalised

Status = Literal["merged", "quarantined"]


@dataclass(slots=True)
class Outcome:
    """The account of one batch. good + rejected + ignored = arrived."""

    manifest: Manifest
    arrived: int
    good: int
    rejected: int
    duplicates: int
    ignored: int
    notes: tuple[str, ...]
    status: Status = "merged"
    why: str | None = None
    flagged: str | None = None
    released: bool = False
    stale: int = 0
    missing: int = 0
    versions: int = 0
    changes: dict[str, int] = field(default_factory=dict)

    @property
    def day(self) -> date:
        """The day on which it was observed."""
        return self.manifest.observed_at.date()

    def quarantined(self, why: str) -> "Outcome":
        self.status, self.why = "quarantined", why
        return self

    def count(self, kinds: dict[str, int]) -> None:
        """Add versions by kind; a version may have several kinds, `versions` is counted once."""
        self.versions += kinds.pop("versions", kinds.get("withdrawn", 0))
        for kind, number in kinds.items():
            self.changes[kind] = self.changes.get(kind, 0) + number

    def record(self) -> dict[str, Any]:
        """Return what the file of the day keeps."""
        manifest = self.manifest
        scope = manifest.scope
        return {
            "batch_id": manifest.batch_id,
            "feed": manifest.feed,
            "status": self.status,
            "why": self.why,
            "flagged": self.flagged,
            "released": self.released,
            **{
                name: getattr(self, name)
                for name in (
                    *("arrived", "good", "rejected", "duplicates", "ignored"),
                    *("stale", "missing", "versions", "changes", "notes"),
                )
            },
            "observed_at": _text(manifest.observed_at),
            "content_at": _text(manifest.content_at),
            "landed_at": _text(manifest.landed_at),
            "plan": manifest.plan,
            "complete": manifest.complete,
            "why_incomplete": manifest.why_incomplete,
            "attested": manifest.attested,
            "date_doubt": manifest.date_doubt,
            "requests": manifest.requests,
            "rows_claimed": manifest.rows_claimed,
            "bytes": manifest.bytes,
            **({"redacted": manifest.redacted} if manifest.redacted else {}),
            "scope": {
                "lower": _text(scope.lower),
                "upper": _text(scope.upper),
                "since": _text(scope.since),
                "coins": scope.coins,
                "categories": scope.categories,
                "event_id": scope.event_id,
            },
        }


def outcome_of(manifest: Manifest, read: Normalised) -> Outcome:
    """Begin the account of a batch with what its rows were."""
    return Outcome(
        manifest,
        arrived=read.arrived,
        good=read.good,
        rejected=read.rejected,
        duplicates=read.duplicates,
        ignored=read.ignored,
        notes=read.notes,
    )


def unread(manifest: Manifest, why: str, *, released: bool) -> Outcome:
    """Return the account of a batch that could not be read: nothing of it is counted."""
    outcome = Outcome(
        manifest,
        arrived=0,
        good=0,
        rejected=0,
        duplicates=0,
        ignored=0,
        notes=(),
        released=released,
    )
    return outcome.quarantined(why)


def _text(instant: datetime | None) -> str | None:
    return None if instant is None else instant.isoformat()
