"""The process of one poll: it executes the due pulls, lands them and writes the record.

    python -m pipeline.polling.process    the request is a line of JSON on standard input

A process of its own is quicker and smaller than a run of Dagster, and leaves nothing in Dagster's
databases. At most one sends requests: it holds the lock of polls. Standard input is a pipe of the
process that started it; when that process ends, the poll ends too. Pages that were received are in
the journal, and the next poll lands them.
"""

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime
from time import sleep
from typing import Final

import msgspec

from pipeline.home_location import locate_home
from pipeline.polling.records import PolledFeed, PollRecord, PollRecords, PollRequest
from pipeline.secrecy import begin_private
from pipeline.session import OpenedSession, open_service
from pipeline.settings import SettingsError, read_settings
from resources.deferrals import DeferredPulls, deferred_pull
from resources.errors import CatalogError, Defer
from resources.feeds import poll_and_note
from warehouse.clock import utc_now
from warehouse.errors import LockHeld, WarehouseError
from warehouse.files.locks import hold_lock
from warehouse.home import Home
from warehouse.news import find_news

EXIT_FAILED: Final = 1
EXIT_LOCKED: Final = 3
_END_WITHIN_S: Final = 5.0
_INTERRUPTED: Final = "the process that started it ended, or a signal ended the poll"

Opening = Callable[[], AbstractContextManager[OpenedSession]]


def execute_poll(
    home: Home, request: PollRequest, opening: Opening, *, clock: Callable[[], datetime]
) -> PollRecord:
    """Execute the pulls of a request, land them, and return their record, which is stored too.

    A failure is in the record; nothing is raised for it.

    Raises:
        LockHeld: another process polls or pulls; nothing was done.
    """
    records = PollRecords(home)
    with hold_lock(records.lock, "to poll", wait_s=0):
        before, started_at = records.last(), clock()
        record = PollRecord(
            poll_id=f"{started_at:%Y%m%dT%H%M%S}-{os.getpid()}",
            started_at=started_at,
            failures=0 if before is None else before.failures,
        )
        records.put(record)
        try:
            record = _pulled(home, record, request, opening)
        except (SystemExit, KeyboardInterrupt):
            record = msgspec.structs.replace(record, interrupted=True, error=_INTERRUPTED)
            raise
        except (CatalogError, SettingsError, WarehouseError, OSError) as error:
            record = _failed(record, str(error))
        except BaseException as error:
            record = _failed(record, f"an error in Almanac ({type(error).__name__}); see the log")
            raise
        finally:
            record = msgspec.structs.replace(record, ended_at=clock())
            records.put(record)
        return record


def _pulled(home: Home, record: PollRecord, request: PollRequest, opening: Opening) -> PollRecord:
    """Return the record of a poll whose pulls were executed, as far as they succeeded."""
    deferrals, feeds = DeferredPulls(home.state_storage), list[PolledFeed]()
    failure, sent, quota_left = "", 0, None
    with opening() as service:
        try:
            for pulled in poll_and_note(service, request.poll(), deferrals):
                feeds.append(PolledFeed.of(pulled))
        except Defer as error:
            deferrals.note(deferred_pull("polls", "events", error, service.now()))
        except (CatalogError, WarehouseError) as error:
            failure = str(error)
        sent, quota_left = service.log.count, service.quota_left
    return _judged(home, record, feeds, sent=sent, quota_left=quota_left, failure=failure)


def _judged(
    home: Home,
    record: PollRecord,
    feeds: list[PolledFeed],
    *,
    sent: int,
    quota_left: int | None,
    failure: str,
) -> PollRecord:
    """Return the record with the feeds that bring news."""
    # Of all that wait, and not only of this poll: it may have landed what another left open.
    news = find_news(home)
    judged = tuple(
        msgspec.structs.replace(polled, news=not news.isdisjoint(polled.batches))
        for polled in feeds
    )
    return msgspec.structs.replace(
        record,
        feeds=judged,
        sent=sent,
        quota_left=quota_left,
        error=failure,
        failures=record.failures + 1 if failure else 0,
    )


def _failed(record: PollRecord, why: str) -> PollRecord:
    return msgspec.structs.replace(record, error=why, failures=record.failures + 1)


def main() -> int:
    """Read the request, execute it, and return the exit code."""
    signal.signal(signal.SIGTERM, _end)
    begin_private()
    logging.basicConfig(level=logging.WARNING, format="almanac poll: %(message)s")
    request = msgspec.json.decode(sys.stdin.buffer.readline(), type=PollRequest)
    threading.Thread(target=_end_with_starter, name="almanac-poll", daemon=True).start()
    try:
        settings = read_settings()
        record = execute_poll(
            locate_home(settings),
            request,
            lambda: open_service(settings, work="polls"),
            clock=utc_now,
        )
    except SettingsError as error:
        logging.error("%s", error)
        return EXIT_FAILED
    except LockHeld as error:
        logging.warning("%s", error)
        return EXIT_LOCKED
    return EXIT_FAILED if record.error else 0


def _end(number: int, frame: object) -> None:
    raise SystemExit(128 + number)


def _end_with_starter() -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    sleep(_END_WITHIN_S)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
