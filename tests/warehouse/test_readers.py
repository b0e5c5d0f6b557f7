"""Readers beside merges."""

import json
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from tests.history.stories.handmade import HandmadeHome, event
from warehouse.queries import connect, connected, run_sql

ROOT = Path(__file__).parents[2]
COUNT = "SELECT count(*) FROM event_versions"
STATE = (
    "SELECT count(*), count(*) FILTER (known_to IS NULL) FROM event_versions",
    "SELECT sum(version), count(*) FROM events",
    "SELECT count(*) FROM batches",
    "SELECT value FROM _almanac.facts WHERE name = 'publication'",
)
"""The state of a publication, in several statements."""

HOLD_OPEN = """
import sys, duckdb
connection = duckdb.connect(sys.argv[1], read_only=True)
count = lambda: connection.sql("SELECT count(*) FROM event_versions").fetchall()[0][0]
print(count(), flush=True)
sys.stdin.readline()
print(count(), flush=True)
"""

# It reads the file again and again, from the path or from one connection.
READ_FOREVER = """
import json, sys, time
from pathlib import Path
from almanac.reading.attached_file import connect
from tests.warehouse.test_readers import STATE

path, reopens = Path(sys.argv[1]), sys.argv[2] == "reopens"
connection, states, reads = connect(path), set(), 0
print("reading", flush=True)
while not Path(sys.argv[3]).exists():
    if reopens:
        connection.close()
        connection = connect(path)
    state = []
    for sql in STATE:
        state += connection.execute(sql).fetchall()[0]
        time.sleep(0.001)
    states.add(tuple(state))
    reads += 1
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


def versions(connection: duckdb.DuckDBPyConnection) -> int:
    return int(run_sql(connection, COUNT).rows[0][0])


def read_state(story: HandmadeHome) -> tuple[object, ...]:
    with connected(story.home.warehouse) as connection:
        return tuple(value for sql in STATE for value in connection.execute(sql).fetchall()[0])


def test_a_reader_in_this_process_keeps_what_it_opened_and_a_new_one_sees_what_is_new(
    story: HandmadeHome,
) -> None:
    first, second = connect(story.home.warehouse), connect(story.home.warehouse)
    assert versions(first) == 2
    change(story)
    story.merge()
    third = connect(story.home.warehouse)
    assert [versions(item) for item in (first, second, third)] == [2, 2, 3]
    for item in (first, second, third):
        item.close()


def test_a_publication_does_not_change_the_file_before_it(
    story: HandmadeHome, tmp_path: Path
) -> None:
    kept, content = tmp_path / "kept.duckdb", story.home.warehouse.read_bytes()
    kept.hardlink_to(story.home.warehouse)
    change(story)
    story.merge()
    assert kept.read_bytes() == content != story.home.warehouse.read_bytes()


def test_a_reader_in_another_process_never_blocks_and_keeps_what_it_opened(
    story: HandmadeHome,
) -> None:
    command = [sys.executable, "-c", HOLD_OPEN, str(story.home.warehouse)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as reader:
        assert reader.stdin is not None
        assert reader.stdout is not None
        assert reader.stdout.readline() == "2\n"
        change(story)
        story.merge()
        print(file=reader.stdin, flush=True)
        assert reader.stdout.readline() == "2\n"
    with connected(story.home.warehouse) as connection:
        assert versions(connection) == 3


@pytest.mark.parametrize("number", [50, pytest.param(500, marks=pytest.mark.long)])
def test_readers_see_one_consistent_state_during_publications(
    story: HandmadeHome, tmp_path: Path, number: int
) -> None:
    """One process holds the first file, another opens each new one."""
    states, stop = [read_state(story)], tmp_path / "stop"
    readers = [
        subprocess.Popen(
            [sys.executable, "-c", READ_FOREVER, str(story.home.warehouse), kind, str(stop)],
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
