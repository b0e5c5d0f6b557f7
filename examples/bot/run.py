"""Run the strategy on one of the sources, and print its decisions.

python run.py poll http://127.0.0.1:8650 --coins bitcoin,ethereum      # ALMANAC_API_KEY is the key
python run.py follow http://127.0.0.1:8651 --coins bitcoin --since 2026-03-01
python run.py recorded data --coins bitcoin --since 2026-03-01
"""

import argparse
import os
import sys
from datetime import UTC, datetime

import httpx
import sources
from strategy import StepAside

parser = argparse.ArgumentParser(description="Step aside before big events.")
parser.add_argument("source", choices=("poll", "follow", "recorded"))
parser.add_argument("place", help="a base address, or a home for `recorded`")
parser.add_argument("--coins", required=True, help="slugs, with commas")
parser.add_argument("--since", help="the start, UTC; not for `poll`")
parser.add_argument("--every", type=float, default=60.0, help="seconds between two polls")


def main() -> None:
    given = parser.parse_args()
    strategy = StepAside(frozenset(given.coins.split(",")))
    if given.source != "poll" and given.since is None:
        parser.error(f"{given.source} needs --since")
    since = datetime.fromisoformat(given.since or "2000-01-01")
    since = since.replace(tzinfo=UTC) if since.tzinfo is None else since
    if given.source == "recorded":
        decisions = sources.recorded(given.place, strategy, since)
    else:
        headers = {"x-api-key": os.environ.get("ALMANAC_API_KEY", "")}
        client = httpx.Client(base_url=given.place, headers=headers, timeout=30)
        if given.source == "poll":
            decisions = sources.poll(client, strategy, every_s=given.every)
        else:
            decisions = sources.follow(client, strategy, since, every_s=given.every)
    for found in decisions:
        line = f"{found.at:%Y-%m-%d %H:%M:%S} {found.action:6} {found.coin} ({found.because})"
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
