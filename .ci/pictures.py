"""Makes the images of the docs: `python .ci/pictures.py http://127.0.0.1:8651 docs/images`.

The address is of `almanac serve` over the home of `almanac run --days 25`. It needs Chromium.
"""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from urllib.request import urlopen

FLAGS: Final = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    "--hide-scrollbars",
)


def take_picture(address: str, file: Path, height: int) -> None:
    with TemporaryDirectory() as profile:
        shot = (f"--screenshot={file}", f"--window-size=1120,{height}", address)
        command = ("chromium", *FLAGS, f"--user-data-dir={profile}", *shot)
        subprocess.run(command, check=True, capture_output=True, timeout=120)
    if file.stat().st_size > 150_000:
        raise SystemExit(f"{file} has over 150 kB; lower the height")


def find_moved(site: str) -> str:
    """Return the event that slipped most often in the last 30 days."""
    with urlopen(f"{site}/changes?last=30d&kinds=rescheduled&format=json") as answer:
        rows = json.load(answer)["rows"]
    slips = Counter(row["event_id"] for row in rows if row["move"] == "slipped")
    return slips.most_common(1)[0][0]


if __name__ == "__main__":
    site, folder = sys.argv[1], Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    take_picture(f"{site}/event/{find_moved(site)}", folder / "event.png", 560)
    take_picture(f"{site}/?min_impact=High", folder / "list.png", 640)
    take_picture(f"{site}/coin/bitcoin", folder / "coin.png", 640)
