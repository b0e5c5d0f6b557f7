"""`python -m bench.push`: what `almanac receive` bears, what landing costs, and how soon a delivery
is a row.

Acknowledgements beside a bare loop of durable file writes on the same disk; landing beside four
days of landed deliveries; the time from POST to row with `almanac receive --merge`.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from random import Random
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
from rich.console import Console
from rich.table import Table

import almanac
from bench.children import environment_without_settings
from bench.server.load import closed_loop
from bench.warehouse.homes import make_home
from catalog.contract.constants import SIGNATURE_HEADER
from catalog.contract.signatures import sign
from resources.inbox import Inbox
from warehouse.files.storage import Storage
from warehouse.history.merge import merge
from warehouse.home import Home

PARTS: Final = ("acknowledged", "landing", "merge")
SECRET: Final = "whsec_bench_0123456789abcdef"
SOURCE: Final = "http://127.0.0.1:9"
"""No service listens on this port: the benchmark sends no pull."""
PATH: Final = "/webhooks"
_WORDS: Final = "The network moves to the next release, and holders must act before it. " * 12
_STOP_TIMEOUT_S: Final = 60.0
_GIVE_UP_S: Final = 120.0
_ids = count()


def make_delivery() -> tuple[str, bytes, str]:
    """Return the event's id, the body of about 1.5 KB, and its signature, all new."""
    now, event_id = datetime.now(UTC), f"evt_pushed_{next(_ids):07d}"
    at = f"{now:%Y-%m-%dT%H:%M:%SZ}"
    event = {
        **{"id": event_id, "slug": event_id.replace("_", "-"), "title": f"Upgrade {event_id}"},
        **{"description": _WORDS, "displayedDate": "01 Jun 2027", "date": "2027-06-01T00:00:00Z"},
        **{"dateEnd": None, "dateType": "date", "isEstimated": False, "categories": ["Other"]},
        **{"coins": [{"slug": "coin-1", "symbol": "c1", "name": "Coin 1"}], "impact": 5.5},
        **{"impactSummary": "It may matter to holders.", "sourceUrl": "https://example.org/a"},
        **{"snapshotUrl": None, "lastVerifiedAt": None, "createdAt": at, "updatedAt": at},
    }
    body = {
        **{"id": f"dlv_{event_id}", "type": "events.created", "apiVersion": "2.0"},
        **{"deliveredAt": at, "data": event},
    }
    data = json.dumps(body, separators=(",", ":")).encode()
    return event_id, data, sign(data, secrets=[SECRET], at=now)


def make_request() -> bytes:
    """Return a whole HTTP request with a new delivery."""
    _, body, signature = make_delivery()
    head = (
        f"POST {PATH} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"{SIGNATURE_HEADER}: {signature}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


@contextmanager
def receiver(home: Home, *words: str) -> Iterator[int]:
    """Run `almanac receive` on a home; yields its port."""
    environment = {
        **environment_without_settings(),
        **{"ALMANAC_HOME": str(home.root), "ALMANAC_STATE": str(home.root.with_name("state"))},
        **{"ALMANAC_BASE_URL": SOURCE, "ALMANAC_API_KEY": "bench-key-0123456789abcdef"},
        **{"ALMANAC_WEBHOOK_SECRETS": SECRET},
    }
    process = subprocess.Popen(
        [str(Path(sys.executable).with_name("almanac")), "receive", "--port=0", "--json", *words],
        env=environment,
        stdout=subprocess.PIPE,
        cwd=home.root.parent,
        text=True,
    )
    try:
        assert process.stdout is not None
        port = urlsplit(json.loads(process.stdout.readline())["url"]).port
        assert port is not None
        yield port
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=_STOP_TIMEOUT_S)


def new_home(folder: Path, name: str) -> Home:
    home = Home(folder / name / "home")
    home.claim(SOURCE)
    return home


def acknowledged(folder: Path, *, quick: bool) -> dict[str, float]:
    """Return durable acknowledgements per second, beside those of a bare loop of file writes."""
    home, seconds = new_home(folder, "acknowledged"), 2 if quick else 10
    with receiver(home) as port:
        requests = [make_request() for _ in range(2_000 * seconds)]
        times = closed_loop(port, requests, for_s=seconds, connections=32, expected=204)
    stored = len(Inbox(home).names())
    assert stored >= len(times.seconds), "an acknowledged delivery is lost"
    bare, written, began = Storage(folder / "bare"), 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        bare.put(f"{written}.json", requests[written % len(requests)])
        written += 1
    return {
        "acknowledged": stored,
        "per_s": times.per_s,
        "p50_ms": times.quantile_ms(0.50),
        "p99_ms": times.quantile_ms(0.99),
        "bare_per_s": written / seconds,
    }


def landing(folder: Path, *, quick: bool) -> dict[str, float]:
    """Return the seconds to land one delivery, and 1,000, beside four days of small batches."""
    home, now = new_home(folder, "landing"), datetime.now(UTC)
    inbox, batches = Inbox(home), 100 if quick else 1_200
    for number in range(batches):
        at = now - timedelta(days=4) * (batches - number) / batches
        inbox.store(make_delivery()[1], at)
        # Without the look into the days before, which would take minutes here.
        landed = [inbox.read(name, "waiting") for name in inbox.names()]
        inbox._land_batch(landed, lambda: now)
        for name in inbox.names():
            inbox.path(name, "waiting").unlink()
    figures: dict[str, float] = {"landed_batches": batches}
    for waiting in (1, 1_000):
        for _ in range(waiting):
            inbox.store(make_delivery()[1], datetime.now(UTC))
        began = time.perf_counter()
        inbox.land(lambda: now)
        figures[f"{waiting:,} waiting, s"] = time.perf_counter() - began
    return figures


def merged(folder: Path, *, quick: bool) -> dict[str, float]:
    """Return the seconds from POST to row, merged by `almanac receive --merge`."""
    home, events = new_home(folder, "merge"), 2_000 if quick else 50_000
    make_home(
        home,
        events=events,
        versions=events * 6 // 5,
        coins=events * 64 // 1_000,
        days=30,
        source=SOURCE,
    )
    merge(home)
    seconds, random = list[float](), Random(16)
    with receiver(home, "--merge") as port, httpx.Client(trust_env=False) as client:
        for _ in range(5 if quick else 25):
            time.sleep(random.uniform(0.0, 6.0))
            event_id, body, signature = make_delivery()
            began = time.monotonic()
            headers = {SIGNATURE_HEADER: signature}
            address = f"http://127.0.0.1:{port}{PATH}"
            client.post(address, content=body, headers=headers).raise_for_status()
            while not _has_row(home, event_id):
                if time.monotonic() - began > _GIVE_UP_S:
                    raise SystemExit(f"{event_id} is not in the warehouse after {_GIVE_UP_S:g} s")
                time.sleep(0.02)
            seconds.append(time.monotonic() - began)
    return {"deliveries": len(seconds), "median_s": median(seconds), "max_s": max(seconds)}


def _has_row(home: Home, event_id: str) -> bool:
    with almanac.open(home.root) as database:
        found = database.sql("SELECT count(*) AS n FROM events WHERE event_id = $id", id=event_id)
    return bool(found.arrow()["n"].to_pylist()[0])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.push", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a quick look, no figures")
    parser.add_argument("--only", action="append", choices=PARTS, help="one part; may be repeated")
    parser.add_argument("--folder", type=Path, help="a folder on a disk; else a temporary one")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures there")
    arguments = parser.parse_args()
    parts = {"acknowledged": acknowledged, "landing": landing, "merge": merged}
    figures: dict[str, Any] = {"load_average": os.getloadavg()[0]}
    with TemporaryDirectory(prefix="almanac-push-", dir=arguments.folder) as temporary:
        for name in arguments.only or PARTS:
            figures[name] = parts[name](Path(temporary), quick=arguments.quick)
            table = Table(*figures[name], title=name, title_justify="left")
            table.add_row(*(f"{value:,.3f}" for value in figures[name].values()))
            Console(highlight=False).print(table)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
