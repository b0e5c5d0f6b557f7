"""Turns `almanac status --json` on standard input into metrics for Prometheus on standard output.

    almanac status --json | python3 deploy/metrics.py > /var/lib/node_exporter/almanac.prom

Needs Python alone. One sample a line, in the text format of Prometheus; times are Unix seconds.
"""

import json
import sys
from collections.abc import Iterator
from datetime import datetime
from typing import Any


def samples(status: dict[str, Any]) -> Iterator[tuple[str, str, float]]:
    """Yield name, label and value of each metric; what the home does not know is left out."""
    yield "almanac_home", "", int(status["source"] is not None)
    yield "almanac_warnings", "", len(status["warnings"])
    for warning in status["warnings"]:
        yield "almanac_warning", f'kind="{warning["kind"]}"', 1
    for feed in status["feeds"]:
        if feed["age_s"] is not None:
            yield "almanac_feed_age_seconds", f'feed="{feed["feed"]}"', feed["age_s"]
    yield "almanac_batches_to_merge", "", status["pending"]
    if status["published_at"]:
        published_at = datetime.fromisoformat(status["published_at"]).timestamp()
        yield "almanac_published_timestamp_seconds", "", published_at
    quota = status["quota"] or {}
    for name in ("quota", "remaining", "projected"):
        if quota.get(name) is not None:
            suffix = "" if name == "quota" else f"_{name}"
            yield f"almanac_quota{suffix}_requests", "", quota[name]
    for part, size in status["bytes"].items():
        yield "almanac_bytes", f'part="{part}"', size
    if status["free_bytes"] is not None:
        yield "almanac_free_bytes", "", status["free_bytes"]


def text_of(status: dict[str, Any]) -> str:
    """Return the samples in the text format; each name has its type once."""
    lines, named = [], ""
    for name, label, value in samples(status):
        if name != named:
            lines.append(f"# TYPE {name} gauge")
            named = name
        lines.append(f"{name}{{{label}}} {value}" if label else f"{name} {value}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(text_of(json.load(sys.stdin)))
