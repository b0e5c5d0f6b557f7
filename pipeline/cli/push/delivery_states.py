"""What became of the deliveries of an inbox, for people: states, choice by id, batch, body.

Belongs here: reading inbox, progress and landing together. Does not: printing (inbox.py).
"""

import json
import logging
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from resources.inbox.inbox_file import InboxDelivery, InboxReader
from resources.inbox.progress import (
    LandingProgress,
    SettledLetter,
    read_progress,
    settled_letters,
)
from warehouse.errors import DamagedBatch, LandingError, WarehouseError
from warehouse.home import Home
from warehouse.landing.batches import LandedPage, Manifest, feed_of
from warehouse.normalise.json_feeds import delivery_head
from warehouse.queries import rejected_deliveries

log = logging.getLogger(__name__)

State = Literal["waiting", "landed", "dead", "replayed", "dismissed"]
"""Landed with the next landing; in landing; a dead letter that nobody settled; a dead letter that
was landed later; a dead letter that is never landed."""


class NotChosen(Exception):
    """An argument names no delivery, several, or one in another state. Nothing was changed."""


@dataclass(frozen=True, slots=True)
class StatedDelivery:
    """A delivery with its state, and the decision of a person if it is a dead letter."""

    delivery: InboxDelivery
    state: State
    settled: SettledLetter | None = None
    rejected: str | None = None
    """Why the merge left it out, though it was landed."""

    @property
    def is_letter(self) -> bool:
        """Whether it is or was a dead letter."""
        return self.delivery.trouble is not None

    def record(self) -> dict[str, Any]:
        """Return what a list shows, for JSON."""
        found = self.delivery
        return {
            "seq": found.seq,
            "id": found.delivery_id,
            "received_at": found.received_at,
            "type": found.kind,
            "event_id": found.event_id,
            "bytes": found.size,
            "state": self.state,
            "trouble": found.trouble,
            "rejected": self.rejected,
        }


@dataclass(frozen=True, slots=True)
class InboxView:
    """The inbox of a home at one moment: reads the deliveries that are asked for, and no others."""

    home: Home
    reader: InboxReader
    progress: LandingProgress
    settled: dict[int, SettledLetter] = field(repr=False)

    @classmethod
    def of(cls, home: Home) -> "InboxView":
        """Read how far landing is, and what was settled.

        Raises:
            InboxUnusable: a file of the inbox can't be read; as all methods here.
        """
        return cls(home, InboxReader(home), read_progress(home), settled_letters(home))

    def newest(self, limit: int) -> list[StatedDelivery]:
        return self._stated(self.reader.newest(limit))

    def of_unknown_kinds(self, limit: int) -> list[StatedDelivery]:
        return self._stated(self.reader.of_unknown_kinds(limit))

    def dead(self, limit: int | None = None) -> list[StatedDelivery]:
        """Return the newest dead letters that nobody settled, the newest first."""
        in_trouble = self.reader.count_in_trouble()
        most = in_trouble if limit is None else min(in_trouble, limit + len(self.settled))
        stated = self._stated(self.reader.in_trouble(most))
        return [letter for letter in stated if letter.state == "dead"][:limit]

    def count_dead(self) -> int:
        """Return how many dead letters nobody settled."""
        return self.reader.count_in_trouble() - len(self.settled)

    def named(self, name: str) -> list[StatedDelivery]:
        """Return the deliveries with an id, or the one with a number, bodies included.

        Raises:
            NotChosen: there is none.
        """
        found = self.reader.by_id(name)
        if not found and name.isascii() and name.isdigit() and len(name) < 19:
            by_seq = self.reader.by_seq(int(name))
            found = [] if by_seq is None else [by_seq]
        if not found:
            raise NotChosen(
                f"no delivery has the id or number {name!r}. Nothing was changed. `almanac inbox "
                "list` shows the newest."
            )
        return self._stated(found)

    def single_named(self, name: str) -> StatedDelivery:
        """Return the delivery with an id or a number.

        Raises:
            NotChosen: there is none, or several bodies came with the id.
        """
        found = self.named(name)
        if len(found) > 1:
            seqs = ", ".join(str(stated.delivery.seq) for stated in found)
            raise NotChosen(f"{name} came with {len(found)} bodies; name one by its number: {seqs}")
        return found[0]

    def letters_named(self, names: Iterable[str], *states: State) -> list[StatedDelivery]:
        """Return the dead letters with these ids or numbers that are in one of some states.

        Raises:
            NotChosen: a name has none.
        """
        chosen: dict[int, StatedDelivery] = {}
        for name in names:
            found = self.named(name)
            letters = [letter for letter in found if letter.state in states and letter.is_letter]
            if not letters:
                raise NotChosen(
                    f"{name} is {found[0].state}; expected a dead letter that is "
                    f"{' or '.join(states)}. Nothing was changed."
                )
            chosen |= {letter.delivery.seq: letter for letter in letters}
        return [chosen[seq] for seq in sorted(chosen)]

    def why_unreadable(self, letter: StatedDelivery) -> str | None:
        """Return why this version can't read a dead letter either, None if it can."""
        whole = self.reader.by_seq(letter.delivery.seq)
        return delivery_head((whole and whole.body) or b"").why_unreadable

    def _stated(self, deliveries: Iterable[InboxDelivery]) -> list[StatedDelivery]:
        rejected = _rejections(self.home)
        return [
            StatedDelivery(
                *(found, self._state(found), self.settled.get(found.seq)),
                rejected.get((found.received_at, found.body_sha256.hex())),
            )
            for found in deliveries
        ]

    def _state(self, delivery: InboxDelivery) -> State:
        if delivery.trouble is None:
            return "landed" if delivery.seq <= self.progress.landed_to else "waiting"
        settled = self.settled.get(delivery.seq)
        if settled is None:
            return "dead"
        if settled.outcome == "dismissed":
            return "dismissed"
        return "waiting" if settled.landed_at is None else "replayed"


def _rejections(home: Home) -> dict[tuple[datetime, str], str]:
    """Return why landed deliveries were rejected, by their receipt and the hash of their body."""
    found: dict[tuple[datetime, str], str] = {}
    try:
        rejected = rejected_deliveries(home.warehouse)
    except WarehouseError as error:
        log.warning("%s Rejected deliveries are listed as landed.", error)
        return found
    for batch_id, reasons in rejected.items():
        try:
            manifest = home.landing.manifest(batch_id)
        except LandingError:
            continue  # `almanac verify` reports it.
        for position, page in enumerate(manifest.pages):
            reason = reasons.get(position, reasons.get(None))
            if reason is not None and page.received_at is not None:
                found[page.received_at, page.sha256] = reason
    return found


def landed_page(home: Home, delivery: InboxDelivery) -> tuple[Manifest, LandedPage] | None:
    """Return the batch of a landed delivery and its page there, None if it is in none."""
    digest = delivery.body_sha256.hex()
    for batch_id in home.landing.batch_ids(day=delivery.received_at.date()):
        if feed_of(batch_id) != "deliveries":
            continue
        try:
            manifest = home.landing.manifest(batch_id)
        except DamagedBatch:
            continue  # `almanac verify` reports it.
        for page in manifest.pages:
            if page.received_at == delivery.received_at and page.sha256 == digest:
                return manifest, page
    return None


def body_of(
    home: Home, delivery: InboxDelivery, landed: tuple[Manifest, LandedPage] | None
) -> bytes | None:
    """Return the bytes of a delivery, from landing if the inbox cleared them.

    Raises:
        DamagedBatch: its batch can't be read.
    """
    if delivery.body is not None or landed is None:
        return delivery.body
    manifest, wanted = landed
    return next((body for page, body in home.landing.pages(manifest) if page == wanted), None)


def body_lines(body: bytes) -> Iterator[str]:
    """Yield a body for a person: JSON with indents, any other text as it is, bytes as escapes."""
    text = body.decode("utf-8", "backslashreplace")
    with suppress(ValueError, RecursionError):
        text = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    yield from text.split("\n")


def body_record(body: bytes | None) -> dict[str, str | None]:
    """Return a body for JSON: as a text, or in base64 if it is none."""
    try:
        return {"body": None if body is None else body.decode(), "body_base64": None}
    except UnicodeDecodeError:
        return {"body": None, "body_base64": b64encode(body or b"").decode()}


def counted(letters: Sequence[StatedDelivery]) -> str:
    return "1 dead letter" if len(letters) == 1 else f"{len(letters):,} dead letters"
