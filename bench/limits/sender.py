"""One of several processes that send all requests that the shared limiter allows. Run as a child.

    python -m bench.limits.sender '{"base_url": …, "key": …, "ledger": …, "rate_per_s": …, …}'

The network delays each request by a random time, behind the limiter. Prints how many requests
were sent in and after the time, and the statuses of the answers.
"""

import json
import sys
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from threading import Lock, Thread
from typing import Any

import httpx

from bench.children import print_figures
from resources.errors import CatalogError, Defer
from resources.http.client import CatalogClient
from resources.limits.allowance import Pace, Share
from resources.limits.ledger import Ledger
from resources.limits.limiter import SharedLimiter
from resources.waits import RetryPolicy


class DelayedNetwork(httpx.BaseTransport):
    """A network that delays each request by a random time."""

    def __init__(self, up_to_s: float, random: Random) -> None:
        self._inner = httpx.HTTPTransport()
        self._up_to_s = up_to_s
        self._random = random
        self.statuses: Counter[int] = Counter()
        self.sent_at: list[float] = []
        self._lock = Lock()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        with self._lock:
            self.sent_at.append(time.monotonic())
            wait_s = self._random.uniform(0, self._up_to_s)
        time.sleep(wait_s)
        response = self._inner.handle_request(request)
        with self._lock:
            self.statuses[response.status_code] += 1
        return response


def main() -> None:
    settings: dict[str, Any] = json.loads(sys.argv[1])
    ledger = Ledger(Path(settings["ledger"]), Pace(settings["rate_per_s"], settings["burst"]))
    share = Share("backfill", floor=settings["floor"])
    limiter = SharedLimiter(ledger, share, clock=lambda: datetime.now(UTC))
    network = DelayedNetwork(settings["held_up_s"], Random(settings["seed"]))
    client = CatalogClient(
        settings["base_url"],
        settings["key"],
        limiter=limiter,
        transport=network,
        policy=RetryPolicy(attempts=1),
    )
    begins, until = settings["begins"], settings["begins"] + settings["seconds"]
    time.sleep(max(0.0, begins - time.monotonic()))

    def send() -> None:
        while time.monotonic() < until:
            try:
                client.event("nothing")
            except Defer:
                return
            except CatalogError:
                continue

    threads = [Thread(target=send) for _ in range(settings["threads"])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print_figures(
        left=sum(at <= until for at in network.sent_at),
        after=sum(at > until for at in network.sent_at),
        statuses=dict(network.statuses),
    )


if __name__ == "__main__":
    main()
