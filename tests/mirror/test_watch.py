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

from catalog.contract.plans import PLANS
from pipeline.mirror.mirror import Mirror
from pipeline.mirror.watch import (
    ChangeFilter,
    ChangeSource,
    HomeSource,
    MirrorSource,
    SourceUnavailable,
    WatchRefused,
    WatchStart,
    watch_changes,
)
from tests.hangs import HANGS_AFTER_S
from tests.history.stories.disk import without_syncs
from tests.history.stories.handmade import HandmadeHome
from tests.mirror.publications import Publications, version_of
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
    source: ChangeSource,
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


def home_source(publications: Publications, folder: Path) -> HomeSource:
    return HomeSource(publications.home.home.warehouse, folder)


def test_a_watch_of_a_home_shows_what_each_publication_adds(
    publications: Publications, tmp_path: Path
) -> None:
    publish = lambda: publications.publish(replaying=False)  # noqa: E731
    with closing(home_source(publications, tmp_path / "watch")) as source:
        found = watch(source, WatchStart(since=EARLY), publish, publish, publish)
    assert Counter(map(version_of, found)) == sum(publications.added, Counter())
    assert len({change["cursor"] for change in found}) == len(found)


def test_a_watch_begins_now_unless_told_otherwise(
    publications: Publications, tmp_path: Path
) -> None:
    with closing(home_source(publications, tmp_path / "watch")) as source:
        found = watch(source, WatchStart(), lambda: publications.publish(replaying=False))
    assert Counter(map(version_of, found)) == publications.added[1]


def test_a_watch_resumes_after_any_line_without_a_gap_or_a_repetition(
    publications: Publications, tmp_path: Path
) -> None:
    publications.publish(replaying=False)
    folder = tmp_path / "watch"
    with closing(home_source(publications, folder)) as source:
        whole = watch(source, WatchStart(since=EARLY), once=True)
    publications.publish(replaying=False)
    with closing(home_source(publications, folder)) as source:
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
    assert [note.endswith("responds again.") for note in notes] == [False, True] * 2
    assert notes[0] == (
        f"{mirror.base_url} can't be reached (ConnectError). It is asked again until it responds."
    )


def test_a_mirror_that_never_responded_is_an_error(tmp_path: Path) -> None:
    with (
        closing(MirrorSource("http://127.0.0.1:9")) as source,
        pytest.raises(SourceUnavailable, match="can't be reached"),
    ):
        watch(source, WatchStart())


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (404, b"{}", r"404.*Expected the address of `almanac serve`"),
        (403, b'{"message": "Forbidden"}', r"403: Forbidden\. The key must be one of the mirror's"),
        (400, b'{"message": "Invalid cursor"}', r"400: Invalid cursor\. Begin again with --since"),
        (302, b"", r"302"),
        (200, b"<html>", "is not a page of changes"),
        (200, b'{"data": []}', "is not a page of changes"),
        (200, b"[]", "is not a page of changes"),
    ],
    ids=["404", "403", "400", "302", "html", "no meta", "array"],
)
def test_an_address_that_is_no_mirror_is_an_error_without_the_key(
    status: int, body: bytes, message: str
) -> None:
    transport = httpx.MockTransport(
        lambda _: httpx.Response(status, content=body, headers={"location": "http://other.example"})
    )
    source = MirrorSource("http://m.example", key=SecretStr(CANARY), transport=transport)
    with closing(source), pytest.raises(WatchRefused, match=message) as refused:
        watch(source, WatchStart())
    assert CANARY not in str(refused.value)


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_passing_error_of_a_mirror_is_retried(
    publications: Publications, tmp_path: Path, status: int
) -> None:
    failing = iter([False, True, True, False])
    network = httpx.HTTPTransport(verify=False)

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(status) if next(failing, False) else network.handle_request(request)

    with Mirror(publications.home.home.warehouse, state_dir=tmp_path / "mirror") as mirror:
        source = MirrorSource(mirror.base_url, transport=httpx.MockTransport(answer))
        with closing(source):
            found = watch(source, WatchStart(since=EARLY), lambda: None, lambda: None)
    assert Counter(map(version_of, found)) == publications.added[0]


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
def watching(home: Path, *words: str, **given: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [*ALMANAC, "watch", *words],
        cwd=home,
        env={**environment(home), **given},
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


@pytest.mark.parametrize("place", ["setting", "file"])
def test_the_key_of_a_mirror_reaches_no_output_and_no_file(
    publications: Publications, tmp_path: Path, place: str
) -> None:
    home, folder = publications.home.home, tmp_path / "mirror"
    file = tmp_path / "key"
    file.write_text(CANARY)
    given = {"ALMANAC_API_KEY": CANARY} if place == "setting" else {}
    words = [] if place == "setting" else ["--key-file", str(file)]
    with (
        Mirror(home.warehouse, state_dir=folder, plan=PLANS["enterprise"]) as mirror,
        watching(
            home.root, "--once", "--since", "2026-01-01", "--from", mirror.base_url, *words, **given
        ) as process,
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
