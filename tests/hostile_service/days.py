"""Days with a hostile service: pulled, polled, merged and published, and then a good day.

A life is a home that goes through some hostile days, one run each, and a good one at the end.
Lives run in a process of their own, so that its memory can be measured.
"""

import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

from pydantic import SecretStr

from almanac.reading import attached_file
from catalog.contract.plans import ENTERPRISE
from resources.errors import CatalogError
from resources.http.client import CatalogClient
from resources.http.retry import RetryPolicy, Timeouts, Timing
from resources.request_log import DeferredPulls, RequestLog
from resources.scopes import PollWindow
from resources.service_clock import ServiceClock
from resources.session import CatalogSession, Poll, poll, pull
from tests.hostile_service.kinds import KINDS
from tests.hostile_service.upstream import Upstream, serving
from tests.memory import peak_bytes
from tests.unlimited import Unlimited
from warehouse.files.storage import Storage
from warehouse.history.merge import merge
from warehouse.home import Home
from warehouse.landing.batches import Feed

FIRST: Final = datetime(2018, 2, 23, 6, tzinfo=UTC)
"""The catalog is small then."""
DAY: Final = timedelta(days=1)
COIN: Final = "ethereum"
FEEDS: Final[tuple[Feed, ...]] = ("coins", "categories", "export", "events", "cancellations")
DISK_BYTES: Final = 256 << 20
_PATIENT: Final = Timeouts(connect=60.0, read=300.0, total=300.0, export_total=300.0)
"""The machine may be busy with other tests."""
_SHARES: Final = (1.0, 0.5, 0.2)


@dataclass
class Account:
    """The result of some lives; `false` has what must never happen, in words."""

    runs: int = 0
    false: list[str] = field(default_factory=list)
    disk_bytes: int = 0
    peak_bytes: int = 0


class Life:
    """A home, the service it is given, and its days."""

    def __init__(self, number: int, upstream: Upstream, home: Home, account: Account) -> None:
        self.number = number
        self.upstream = upstream
        self.home = home
        self.account = account
        self.untrue: set[str] = set()
        self.day = 0
        self.kinds: list[str] = []

    def now(self) -> datetime:
        return self.upstream.now

    def live(self, days: int) -> None:
        self._set(())
        self._work()
        for number in range(days):
            chance = Random(self.number * 10 + number)
            self._run(chance.sample(list(KINDS), chance.choice((1, 1, 2, 3))), chance)
        self._set(())
        self._work()
        rows = self.upstream.rows("/v2/events/export", coins=COIN)
        assert len(rows) > 10
        self._check({row["id"]: row["title"] for row in rows}, self._true_cancelled())

    def _run(self, names: list[str], chance: Random) -> None:
        self.kinds = names
        self._set(names)
        self.upstream.share, self.upstream.chance = chance.choice(_SHARES), chance
        self._check_day(self._work())
        self.account.runs += 1

    def _set(self, names: Sequence[str]) -> None:
        self.day += 1
        self.upstream.now = FIRST + self.day * DAY
        self.upstream.kinds = [KINDS[name] for name in names]
        self.upstream.untrue = set()

    def _work(self) -> list[str]:
        """Run a day: pull, poll and merge. Return the batches of the day that were merged.

        A day with another date than the one before may fold batches of earlier days again.
        """
        landed_before = set(self.home.landing.batch_ids())
        with self._service() as service:
            self._pull(service)
        report = merge(self.home)
        if self.upstream.failure is not None:
            raise self.upstream.failure
        if self.home.landing.pending():
            self._note("batches are left unmerged")
        size = sum(path.stat().st_size for path in self.home.root.rglob("*") if path.is_file())
        self.account.disk_bytes = max(self.account.disk_bytes, size)
        self.untrue |= self.upstream.untrue
        merged = [outcome.manifest.batch_id for outcome in report.outcomes]
        return [batch_id for batch_id in merged if batch_id not in landed_before]

    def _pull(self, service: CatalogSession) -> None:
        """Send all requests of a day. Only errors of the tree may be raised."""
        self._request(service.request_usage)
        for feed in FEEDS:
            self._request(partial(pull, feed, service))
        today = self.now().date()
        known = self._known()
        what = Poll(
            windows=(PollWindow(today, today + timedelta(days=20)),),
            cancellations=True,
            since=self.now() - DAY,
            event_ids=known[:2],
        )
        self._request(lambda: list(poll(service, what, DeferredPulls(self.home.state_storage))))

    def _request(self, send: Callable[[], object]) -> None:
        try:
            send()
        except CatalogError as error:
            str(error).encode()

    def _known(self) -> tuple[str, ...]:
        if not self.home.warehouse.exists():
            return ()
        found = self._query("SELECT event_id FROM events ORDER BY hash(event_id) LIMIT 2")
        return tuple(event_id for (event_id,) in found if event_id not in (".", ".."))

    def _query(self, query: str) -> list[tuple[Any, ...]]:
        with attached_file.connected(self.home.warehouse) as connection:
            return connection.execute(query).fetchall()

    def _true_cancelled(self) -> set[str]:
        return {row["id"] for row in self.upstream.rows("/v2/events/cancellations")}

    def _check_day(self, batch_ids: list[str]) -> None:
        """Note what the day published about events that no answer had."""
        untrue, names = self.upstream.untrue, ", ".join(f"'{batch_id}'" for batch_id in batch_ids)
        query = "SELECT event_id, title, status FROM event_versions WHERE batch_id IN "
        versions = self._query(f"{query} ({names})") if names else []
        cancelled = self._true_cancelled()
        for event_id, title, status in versions:
            true = self.upstream.titles.get(event_id, set())
            if "content" in untrue or not true:
                continue
            if status == "scheduled" and title not in true:
                self._note(f"on {self.kinds} {event_id} became {title!r}; true are {true}")
            if status == "cancelled" and "gone" not in untrue and event_id not in cancelled:
                self._note(f"on {self.kinds} {event_id} was cancelled, and nobody said so")

    def _check(self, events: dict[str, str], cancelled: set[str]) -> None:
        """Note what is false after a good day, with any answers before it."""
        known = {
            row[0]: row[1:] for row in self._query("SELECT event_id, title, status FROM events")
        }
        for event_id, title in events.items():
            if known.get(event_id) != (title, "scheduled"):
                self._note(f"{event_id} is {known.get(event_id)}, and is {title!r} in truth")
        for event_id in cancelled & known.keys():
            if known[event_id][1] != "cancelled":
                self._note(f"{event_id} is {known[event_id]}, and is cancelled in truth")
        if "content" not in self.untrue:
            for event_id in known.keys() - events.keys() - cancelled:
                self._note(f"{event_id} is {known[event_id]}, and nobody said it")
        if not self.untrue:
            kinds = self._query("SELECT DISTINCT unnest(change_kinds) FROM event_versions")
            for kind in {"withdrawn", "restored"} & {kind for (kind,) in kinds}:
                self._note(f"an event was {kind}, and nobody said so")
        if not self.untrue & {"gone", "content"}:
            gone = self._query("SELECT event_id FROM event_versions WHERE status = 'cancelled'")
            for event_id in {event_id for (event_id,) in gone} - cancelled:
                self._note(f"{event_id} was cancelled, and nobody said so")

    def _note(self, words: str) -> None:
        self.account.false.append(f"life {self.number}, {self.untrue}: {words}")

    @contextmanager
    def _service(self) -> Iterator[CatalogSession]:
        key = SecretStr("canary-5f1c9e7b2a-hostile")
        log = RequestLog(self.home.state, self.now, key=key)
        with CatalogClient(
            self.upstream.base_url,
            key,
            limiter=Unlimited(),
            timing=Timing(clock=self.now, sleep=lambda seconds: None, random=lambda: 0.0),
            policy=RetryPolicy(attempts=2),
            timeouts=_PATIENT,
            observer=log,
            service_clock=ServiceClock(self.now, state=Storage(self.home.state)),
        ) as client:
            landing, source = self.home.landing, "hostile"
            options: Any = {"clock": self.now, "log": log, "coins": (COIN,)}
            yield CatalogSession(
                client=client, plan=ENTERPRISE, source=source, landing=landing, **options
            )


def main(first: str, last: str, days: str, true_url: str, key: str) -> None:
    """Run some lives, each of which depends only on its number; print their account."""
    account = Account()
    with serving(Upstream(true_url, key)) as upstream:
        for number in range(int(first), int(last)):
            with tempfile.TemporaryDirectory(prefix="almanac-hostile-") as folder:
                life = Life(number, upstream, Home(Path(folder)), account)
                try:
                    life.live(int(days))
                except Exception as error:
                    error.add_note(f"life {number}, day {life.day}, kinds {life.kinds}")
                    raise
    account.peak_bytes = peak_bytes()
    sys.stdout.write(json.dumps(vars(account)))


if __name__ == "__main__":
    main(*sys.argv[1:])
