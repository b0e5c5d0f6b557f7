"""What a poll is to pull, and the record of the last one in the state of a home.

    state/poll.json    the last poll: what it pulled, what that cost, whether it brought news
    state/poll.lock    held while a poll or a daily pull sends requests

A poll runs in a process of its own, which writes the record when it starts and when it ends; so a
record without an end, while nobody holds the lock, is that of a poll that was killed. Belongs
here: these records. Does not: the process (process.py), how a record is shown (automation).
Dagster is not imported. Instants are aware UTC, by the machine's clock.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, Self

import msgspec

from pipeline.polling.plan import CancellationsPull, EventsPull, Pull
from resources.feeds import Poll, Pulled
from resources.ingest.scopes import PollWindow
from warehouse.files.notes import put_note, read_note
from warehouse.home import Home
from warehouse.landing.batches import Feed

FILE: Final = "poll.json"
LOCK: Final = "poll.lock"


class PollRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The pulls of a poll, as its process and a run's config have them.

    A window is its first and last event date; without a last date it ends with the plan. `since`
    is the earliest instant of the cancellations, empty is as far back as they are listed.
    """

    windows: tuple[tuple[str, ...], ...] = ()
    cancellations: bool = False
    since: str = ""
    event_ids: tuple[str, ...] = ()

    @classmethod
    def of_due(cls, due: Sequence[Pull]) -> Self:
        """Return the request for the due pulls of a plan."""
        windows: list[tuple[str, ...]] = []
        event_ids: list[str] = []
        cancellations, since = False, ""
        for pull in due:
            if isinstance(pull, EventsPull):
                windows.append(tuple(pull.window.texts()))
            elif isinstance(pull, CancellationsPull):
                cancellations, since = True, "" if pull.since is None else pull.since.isoformat()
            else:
                event_ids += pull.event_ids
        return cls(
            windows=tuple(windows),
            cancellations=cancellations,
            since=since,
            event_ids=tuple(event_ids),
        )

    def poll(self) -> Poll:
        """Return the request with its dates and instants.

        Raises:
            ValueError: a text is no date or instant.
        """
        return Poll(
            windows=tuple(PollWindow.of_texts(*texts) for texts in self.windows),
            cancellations=self.cancellations,
            since=datetime.fromisoformat(self.since) if self.since else None,
            event_ids=self.event_ids,
        )


class PolledFeed(msgspec.Struct, frozen=True, kw_only=True):
    """What a poll pulled of one feed. `news` says whether a merge would change more than times."""

    feed: Feed
    requests: int
    rows: int
    batches: tuple[str, ...] = ()
    bytes: int = 0
    observed_at: datetime | None = None
    news: bool = False
    deferred: str = ""
    warnings: tuple[str, ...] = ()

    @classmethod
    def of(cls, pulled: Pulled) -> Self:
        manifests = [landed.manifest for landed in pulled.landed]
        return cls(
            feed=pulled.feed,
            requests=pulled.requests,
            rows=pulled.rows,
            batches=tuple(manifest.batch_id for manifest in manifests),
            bytes=sum(manifest.bytes for manifest in manifests),
            observed_at=max((batch.observed_at for batch in manifests), default=None),
            deferred="" if pulled.deferred is None else str(pulled.deferred),
            warnings=tuple(text for landed in pulled.landed for text in landed.warnings),
        )


class PollRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A poll. `ended_at` None is in progress, or killed.

    `sent` counts all its requests, with retries and requests of usage. `failures` counts the polls
    that failed in a row, with this one. `is_shown` says that its error was shown.
    """

    poll_id: str
    started_at: datetime
    ended_at: datetime | None = None
    feeds: tuple[PolledFeed, ...] = ()
    sent: int = 0
    quota_left: int | None = None
    error: str = ""
    interrupted: bool = False
    failures: int = 0
    is_shown: bool = False

    @property
    def news(self) -> tuple[PolledFeed, ...]:
        """The feeds that brought news."""
        return tuple(polled for polled in self.feeds if polled.news)

    def cost(self) -> str:
        """Return what was pulled and what it cost, as text."""
        names = " and ".join(polled.feed for polled in self.feeds) or "nothing"
        left = "" if self.quota_left is None else f"; {self.quota_left:,} are left this month"
        requests = "1 request" if self.sent == 1 else f"{self.sent:,} requests"
        return f"The poll of {self.started_at:%H:%M:%S} UTC pulled {names}, {requests}{left}"


@dataclass(frozen=True, slots=True)
class PollRecords:
    """The record of the last poll of a home."""

    home: Home

    @property
    def lock(self) -> Path:
        return self.home.state / LOCK

    def last(self) -> PollRecord | None:
        """Return the record, None if there is none or it is damaged."""
        return read_note(self.home.state_storage, FILE, PollRecord)

    def put(self, record: PollRecord) -> None:
        put_note(self.home.state_storage, FILE, record)
