"""Readers beside merges."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from almanac.reading.attached_file import connected
from tests.history.stories.handmade import HandmadeHome, event

ROOT = Path(__file__).parents[2]
STATE = (
    "SELECT count(*), count(*) FILTER (known_to IS NULL) FROM event_versions",
    "SELECT sum(version), count(*) FROM events",
    "SELECT count(*) FROM batches",
    "SELECT value FROM _almanac.facts WHERE name = 'publication'",
)
"""The state of a publication, in several statements."""


# It reads the file again and again, from the path or from one connection, and once at the end.
READ_FOREVER = """
import json, sys, time
from pathlib import Path
from almanac.reading.attached_file import connect

path, reopens, statements = Path(sys.argv[1]), sys.argv[2] == "reopens", json.loads(sys.argv[4])
connection, states, reads, ends = connect(path), set(), 0, False
while True:
    state = []
    for sql in statements:
        state += connection.execute(sql).fetchall()[0]
        time.sleep(0.005)
    states.add(tuple(state))
    reads += 1
    if reads == 1:
        print("reading", flush=True)
    if ends:
        break
    ends = Path(sys.argv[3]).exists()
    if reopens:
        connection.close()
        connection = connect(path)
print(json.dumps([reads, list(states)]), flush=True)
"""


@pytest.fixture
def story(tmp_path: Path) -> HandmadeHome:
    """A home whose published file has two versions."""
    story = HandmadeHome(tmp_path / "home")
    story.listed("01 06:00", event("a"), event("b"))
    story.merge()
    return story


def change(story: HandmadeHome) -> None:
    """Land a list with a new version of one event, a minute after the last list."""
    number = len(story.home.landing.batch_ids())
    when = f"02 {number // 60:02}:{number % 60:02}"
    story.listed(when, event("a", title=f"Title {number}"), event("b"))


def read_state(story: HandmadeHome) -> tuple[object, ...]:
    with connected(story.home.warehouse) as connection:
        return tuple(value for sql in STATE for value in connection.execute(sql).fetchall()[0])


@pytest.mark.parametrize("number", [4, pytest.param(300, marks=pytest.mark.long)])
def test_readers_see_one_consistent_state_during_publications(
    story: HandmadeHome, tmp_path: Path, number: int
) -> None:
    """One process holds the first file, another opens each new one."""
    states, stop = [read_state(story)], tmp_path / "stop"
    readers = [
        subprocess.Popen(
            [
                *(sys.executable, "-c", READ_FOREVER, str(story.home.warehouse), kind, str(stop)),
                json.dumps(STATE),
            ],
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        for kind in ("holds", "reopens")
    ]
    try:
        for reader in readers:
            assert reader.stdout is not None
            assert reader.stdout.readline() == "reading\n"
        for _ in range(number):
            change(story)
            story.merge()
            states.append(read_state(story))
    finally:
        stop.touch()
        held, reopened = (json.loads(reader.communicate()[0]) for reader in readers)
    assert len(set(states)) == number + 1
    assert held[0] > 1
    assert [tuple(state) for state in held[1]] == states[:1]
    assert 1 < len(reopened[1]) <= reopened[0]
    assert {tuple(state) for state in reopened[1]} <= {*states}
