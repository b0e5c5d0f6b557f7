"""A feed of changes in memory, and a sender with its files, on clocks that tests set."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from msgspec.structs import replace

from catalog.contract.constants import SignatureForm
from catalog.contract.plans import PLANS
from catalog.server.catalog_store import ChangeQuery, KnownSpan, StoredVersion, StorePage
from catalog.server.service_dir import ServiceDir
from catalog.server.webhooks.delivery import Poster
from catalog.server.webhooks.endpoints import Endpoint
from catalog.server.webhooks.sender import PAGE_SIZE, SenderOptions, WebhookSender
from tests.hangs import HANGS_AFTER_S
from tests.server.bare_server import event

START = datetime(2026, 5, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
CANARY_TITLE = "canary-title"
EVENT = event("e", START, title=CANARY_TITLE, impact=7.25, updated_at=START)


def change(number: int, **fields: object) -> StoredVersion:
    """Return the first version of the event `e<number>`, known `number` minutes after the start."""
    known_from, shown = START + number * MINUTE, replace(EVENT, id=f"e{number}")
    version = StoredVersion(
        *(number, shown.id, 1, known_from, None, "scheduled", None, (), (), True, shown)
    )
    return replace(version, **fields)


class Feed:
    """The part of a store that a sender reads. A page has three rows."""

    def __init__(self) -> None:
        self.versions: list[StoredVersion] = []
        self.feed_id = "first"
        self.span = KnownSpan(None, None, 0)
        self.fails_at_page: int | None = None

    def changes(self, query: ChangeQuery, *, limit: int) -> StorePage[StoredVersion]:
        if self.fails_at_page is not None:
            self.fails_at_page -= 1
            if self.fails_at_page < 0:
                self.fails_at_page = None
                raise OSError("cut")
        found = [
            version
            for version in self.versions
            if query.after < version.seq and version.known_from <= query.until
            if version.seq > query.head or not query.since or version.known_from > query.since
        ]
        rows = found[: 3 if limit == PAGE_SIZE else limit]
        return StorePage(rows, len(rows) < len(found), len(found))

    def head(self, until: datetime) -> int:
        return max((each.seq for each in self.versions if each.known_from <= until), default=0)


class SetClock:
    """A clock that stands: `now` is the catalog's clock, a call the wall clock."""

    def __init__(self, instant: datetime) -> None:
        self.instant = instant

    def now(self) -> datetime:
        return self.instant

    def __call__(self) -> datetime:
        return self.instant


class Service:
    """A sender with its files, and `acme` and `other`, two accounts with push."""

    def __init__(self, directory: Path) -> None:
        self.feed, self.poster = Feed(), Poster(timeout_s=HANGS_AFTER_S)
        self.clock, self.wall = SetClock(START), SetClock(datetime(2030, 1, 1, tzinfo=UTC))
        self.folder = ServiceDir(directory, wall=self.wall)
        self.book, self.accounts = self.folder.endpoint_book(), self.folder.key_book()
        for account, plan in (("acme", "elite"), ("other", "enterprise")):
            self.accounts.create(account, PLANS[plan])
        self.sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
        self.options: dict[str, object] = {}
        self.outbox = self.folder.outbox()
        self.restart()

    def restart(self, *, states_created: bool = False, **options: object) -> None:
        """Start a sender on the same files, with options that stay."""
        self.outbox.close()
        self.outbox = self.folder.outbox()
        self.options |= options
        self.sender = WebhookSender(
            lambda _: self.feed,  # type: ignore[arg-type, return-value]
            *(self.clock, self.book, self.outbox),
            wall=self.wall,
            poster=self.poster,
            sleep=self.sleep,
            options=SenderOptions(**{"poll_s": 0.02, **self.options}),  # type: ignore[arg-type]
            states_created=states_created,
        )

    async def subscribe(
        self, url: str, account: str = "acme", signature: SignatureForm = "hex"
    ) -> Endpoint:
        """Add an endpoint and let the sender see it, so that it gets changes from now on."""
        added = self.book.add(url, account=account, allow_private=True, signature=signature)
        await self.sender.run_once()
        return added

    async def pass_minutes(self, minutes: int) -> None:
        """Advance the catalog's clock, and send the changes."""
        self.clock.instant += minutes * MINUTE
        await self.sender.run_once()
