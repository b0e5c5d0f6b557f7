"""The versions of the events announced in some months, as lines of JSON with times in seconds.

`python -m catalog.sandbox.world.version_lines SEED PACE MONTH…` writes them to its output, so that
a second processor makes a part of a long history.
"""

import sys
from collections.abc import Iterable, Iterator
from typing import IO, Any, Final

import msgspec

from catalog.sandbox.world.categories import CATEGORIES
from catalog.sandbox.world.lifecycle import CANCELLED, Life, generate_lives, pause_garbage_collector
from catalog.sandbox.world.roster import Roster

_NAMES: Final = {category.id: category.name for category in CATEGORIES}


def write_version_lines(
    output: IO[bytes], months: Iterable[int], roster: Roster, pace: float
) -> None:
    """Write the versions of the events that are announced in the months."""
    encode = msgspec.json.Encoder().encode_lines
    for month in months:
        with pause_garbage_collector():
            lives = generate_lives(month, roster, pace)
            output.write(encode(row for life in lives for row in _list_versions(life)))


def _list_versions(life: Life) -> Iterator[dict[str, Any]]:
    content: dict[str, Any] = {**life[0].delta}
    ends = [*(moment.at for moment in life[1:]), None]
    before = life[0].status
    for place, (at, kinds, status, delta) in enumerate(life):
        changed: list[str] = []
        if place:
            changed = [*delta, "status"] if status != before else [*delta]
            content.update(delta)
        if status == CANCELLED:
            changed.append("cancelled_at")
        before = status
        yield {
            **content,
            "event_id": content["id"],
            "version": place + 1,
            "known_from": at,
            "known_to": ends[place],
            "status": status,
            "cancelled_at": at if status == CANCELLED else None,
            "change_kinds": kinds,
            "changed_fields": changed,
            "categories": [_NAMES[id_] for id_ in content["categories"]],
        }


if __name__ == "__main__":
    seed, pace, *months = sys.argv[1:]
    write_version_lines(sys.stdout.buffer, map(int, months), Roster(int(seed)), float(pace))
