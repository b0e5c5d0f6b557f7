"""`almanac watch`: changes of a home and of a mirror as they become known, and where it resumes."""

import json
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from almanac.errors import InvalidArgument
from application.web.mirror.mirror import Mirror
from application.web.mirror.watch import (
    ChangeFilter,
    HomeSource,
    MirrorSource,
    WatchStart,
    watch_changes,
)
from resources.errors import RetryLater
from tests.application.mirror.publications import Publications, version_of
from tests.hangs import HANGS_AFTER_S
from tests.history.stories.disk import without_syncs
from tests.history.stories.handmade import HandmadeHome
from tests.test_cli import ALMANAC, almanac, environment

EARLY = datetime(2026, 1, 1, tzinfo=UTC)
CANARY = "canary-key-of-a-mirror-0123456789"
Change = dict[str, Any]


@pytest.fixture(autouse=True)
def quick_disk() -> Iterator[None]:
    with without_syncs():
        yield


@pytest.fixture
def publications(tmp_path: Path) -> Publications:
    publications = Publications(HandmadeHome(tmp_path / "home"), seed=5)
    publications.publish(replaying=False)
    return publications


def watch(
    source: HomeSource | MirrorSource,
    start: WatchStart,
    *pauses: Callable[[], object],
    once: bool = False,
    notes: list[str] | None = None,
) -> list[Change]:
    """Return the changes of a watch that does something at each pause, and ends at the next."""
    waiting = iter(pauses)

    def pause(seconds: float) -> bool:
        assert seconds > 0
        act = next(waiting, None)
        if act is not None:
            act()
        return act is None

    said: list[str] = [] if notes is None else notes
    return list(watch_changes(source, start, pause=pause, note=said.append, once=once))


def home_source(publications: Publications) -> HomeSource:
    return HomeSource(publications.home.home.warehouse)


def test_a_watch_of_a_home_shows_what_each_publication_adds(publications: Publications) -> None:
    publish = lambda: publications.publish(replaying=False)  # noqa: E731
    with closing(home_source(publications)) as source:
        later = watch(source, WatchStart(), publish)
        found = watch(source, WatchStart(since=EARLY), publish, publish)
    assert Counter(map(version_of, later)) == publications.added[1], "it begins now"
    assert Counter(map(version_of, found)) == sum(publications.added, Counter())
    assert len({change["cursor"] for change in found}) == len(found)


def test_a_watch_resumes_after_any_line_without_a_gap_or_a_repetition(
    publications: Publications,
) -> None:
    publications.publish(replaying=False)
    with closing(home_source(publications)) as source:
        whole = watch(source, WatchStart(since=EARLY), once=True)
    publications.publish(replaying=False)
    with closing(home_source(publications)) as source:
        for place in range(len(whole)):
            rest = watch(source, WatchStart(cursor=whole[place]["cursor"]), once=True)
            expected = Counter(map(version_of, whole[place + 1 :])) + publications.added[2]
            assert Counter(map(version_of, rest)) == expected, place


def test_a_watch_of_a_mirror_outlives_its_restarts(
    publications: Publications, tmp_path: Path
) -> None:
    home, folder = publications.home.home, tmp_path / "mirror"
    mirror = Mirror(home.warehouse, state_dir=folder).start()
    address = httpx.URL(mirror.base_url)
    port = address.port or 0
    running = [mirror]

    def restart() -> None:
        running.append(Mirror(home.warehouse, state_dir=folder, port=port).start())

    def publish() -> None:
        running[-1].stop()
        publications.publish(replaying=False)

    notes: list[str] = []
    source = MirrorSource(mirror.base_url)
    with closing(source):
        # Each stop is followed by failed requests; the restart comes after some of them.
        actions = [publish, lambda: None, restart, publish, restart]
        found = watch(source, WatchStart(since=EARLY), *actions, notes=notes)
    running[-1].stop()
    assert Counter(map(version_of, found)) == sum(publications.added, Counter())
    with closing(home_source(publications)) as same:
        # A cursor of the mirror continues in the home.
        rest = watch(same, WatchStart(cursor=found[-2]["cursor"]), once=True)
    assert [*map(version_of, rest)] == [version_of(found[-1])]
    assert [note.endswith("responds again.") for note in notes] == [False, True] * 2
    assert notes[0] == (
        f"{mirror.base_url} can't be reached (ConnectError). It is asked again until it responds."
    )


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (404, b"{}", r"404.*Expected the address of `almanac serve`"),
        (403, b'{"message": "Forbidden"}', r"403: Forbidden\. The key must be one of the mirror's"),
        (400, b'{"message": "Invalid cursor"}', r"400: Invalid cursor\. Begin again with --since"),
        (503, b"", "responded with 503"),
        (200, b'{"data": []}', "is not a page of changes"),
        (200, b"[]", "is not a page of changes"),
    ],
    ids=["404", "403", "400", "503", "no meta", "array"],
)
def test_an_address_that_is_no_mirror_is_an_error_without_the_key(
    status: int, body: bytes, message: str
) -> None:
    transport = httpx.MockTransport(
        lambda _: httpx.Response(status, content=body, headers={"location": "http://other.example"})
    )
    source = MirrorSource("http://m.example", key=SecretStr(CANARY), transport=transport)
    error = RetryLater if status >= 429 else InvalidArgument
    with closing(source), pytest.raises(error, match=message) as refused:
        watch(source, WatchStart())
    assert CANARY not in str(refused.value)


def test_filters_keep_some_kinds_and_coins() -> None:
    coins = [{"slug": "bitcoin", "symbol": "BTC", "name": "Bitcoin"}]
    change = {"kinds": ["rescheduled", "revised"], "event": {"coins": coins}}
    for chosen, matches in (
        (ChangeFilter(), True),
        (ChangeFilter(kinds=frozenset({"revised", "created"})), True),
        (ChangeFilter(kinds=frozenset({"cancelled"})), False),
        (ChangeFilter(coins=frozenset({"btc"})), True),
        (ChangeFilter(coins=frozenset({"bitcoin"}), kinds=frozenset({"revised"})), True),
        (ChangeFilter(coins=frozenset({"ethereum"})), False),
    ):
        assert chosen.matches(change) is matches, chosen
    undated = {"kinds": ["revised"], "event": None}
    assert ChangeFilter().matches(undated)
    assert not ChangeFilter(coins=frozenset({"btc"})).matches(undated)


@contextmanager
def watching(home: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [*ALMANAC, "watch", *words],
        cwd=home,
        env=environment(home),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def test_the_command_prints_lines_until_a_signal(publications: Publications) -> None:
    home = publications.home.home.root
    count = publications.added[0].total()
    with watching(home, "--since", "2026-01-01") as process:
        assert process.stdout is not None and process.stderr is not None
        lines = [json.loads(process.stdout.readline()) for _ in range(count)]
        publications.publish(replaying=False)
        lines += [
            json.loads(process.stdout.readline()) for _ in range(publications.added[1].total())
        ]
        process.send_signal(signal.SIGTERM)
        assert process.wait(HANGS_AFTER_S) == 130
        assert (process.stdout.read(), process.stderr.read()) == ("", "")
    assert Counter(map(version_of, lines)) == sum(publications.added, Counter())
    resumed = almanac(home, "watch", "--once", "--since", lines[-2]["cursor"])
    assert [json.loads(line) for line in resumed.stdout.splitlines()] == lines[-1:]
    chosen = almanac(home, "watch", "--once", "--since", "2026-01-01", "--kinds", "cancelled")
    assert (chosen.stdout, chosen.stderr) == ("", "")


def test_a_reader_that_closes_the_pipe_ends_the_command(publications: Publications) -> None:
    with watching(publications.home.home.root, "--since", "2026-01-01") as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(HANGS_AFTER_S) in (0, 1)
        assert process.stderr.read() == ""


def test_the_key_of_a_mirror_reaches_no_output_and_no_file(
    publications: Publications, tmp_path: Path
) -> None:
    home, folder = publications.home.home, tmp_path / "mirror"
    file = tmp_path / "key"
    file.write_text(CANARY)
    words = ["--once", "--since", "2026-01-01", "--key-file", str(file)]
    with (
        Mirror(home.warehouse, state_dir=folder) as mirror,
        watching(home.root, *words, "--from", mirror.base_url) as process,
    ):
        shown, said = process.communicate(timeout=HANGS_AFTER_S)
    assert process.returncode == 0, said
    assert len(shown.splitlines()) == publications.added[0].total()
    kept = [path for path in tmp_path.rglob("*") if path.is_file() and path != file]
    assert CANARY not in shown + said
    assert [path for path in kept if CANARY.encode() in path.read_bytes()] == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--kinds", "sung"), "there is no kind 'sung'"),
        (("--kinds", ","), "--kinds is empty"),
        (("--since", "soon"), "--since 'soon'"),
        (("--key-file", "x"), "--key-file is for --from URL"),
        (("--from", "ftp://x"), "--from: the base address must be of the form"),
        (
            ("--from", "http://127.0.0.1:9", "--key-file", "/none"),
            "--key-file: /none can't be read",
        ),
    ],
    ids=["kind", "kinds", "since", "key file", "address", "no key file"],
)
def test_a_wrong_option_is_one_line_and_exit_code_2(
    tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    done = almanac(tmp_path, "watch", *words, code=2)
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
