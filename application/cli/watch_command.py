"""`almanac watch`: changes as JSON lines as they become known, from the home or from a mirror."""

import re
import select
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import Annotated, Final

import typer
from pydantic import SecretStr

from almanac.command_line import stop_by_signals
from almanac.console import EXIT_INTERRUPTED, fail, warnings
from almanac.events import KINDS
from application.cli.options import instant_option
from application.console import print_json
from application.web.mirror.watch import (
    ChangeFilter,
    HomeSource,
    MirrorSource,
    WatchStart,
    watch_changes,
)
from pipeline.home_location import locate_existing_home
from pipeline.settings import Settings, read_settings
from resources.service_address import check_base_url, check_key

_CURSOR: Final = re.compile(r"[A-Za-z0-9_-]{19,4096}")


def watch(
    coins: Annotated[
        str | None, typer.Option(help="Slugs or tickers, separated by commas.")
    ] = None,
    kinds: Annotated[
        str | None, typer.Option(help="Kinds of change, separated by commas, such as cancelled.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            help="Begin with the changes after this time, or after the cursor of a line.",
            show_default="now",
        ),
    ] = None,
    mirror: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="URL", help="Watch a mirror (`almanac serve`) instead of the home."
        ),
    ] = None,
    key_file: Annotated[
        Path | None,
        typer.Option(help="A file with the mirror's key; by default ALMANAC_API_KEY is sent."),
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Exit after the changes that are known now.")
    ] = False,
) -> None:
    """Print each change as a JSON line as it becomes known, from the home or from a mirror.

    A line has the fields of `/v2/events/changes`. Its `cursor` is for `--since`: the next watch
    continues after that line, without a gap or a repetition.
    """
    chosen = ChangeFilter(_names("--kinds", kinds), _names("--coins", coins))
    if chosen.kinds is not None and (unknown := sorted(chosen.kinds.difference(KINDS))):
        fail(f"there is no kind {unknown[0]!r}; the kinds are {', '.join(KINDS)}", code=2)
    start = _start(since)
    if key_file is not None and mirror is None:
        fail("--key-file needs --from URL, which is missing", code=2)
    source = _open_source(mirror, key_file)
    stop = threading.Event()
    stop_by_signals(stop.set)
    with closing(source):
        found = watch_changes(
            source,
            start,
            pause=lambda seconds: stop.wait(seconds) or _is_reader_gone(),
            note=lambda text: warnings.print(f"almanac: {text}", soft_wrap=True),
            once=once,
        )
        for change in found:
            if chosen.matches(change):
                print_json(change)
            if stop.is_set():
                break
    if stop.is_set():
        raise typer.Exit(EXIT_INTERRUPTED)


def _names(option: str, given: str | None) -> frozenset[str] | None:
    if given is None:
        return None
    found = frozenset(name.strip().lower() for name in given.split(",") if name.strip())
    if not found:
        fail(f"{option} is empty; expected {option} a,b, or no {option} for all", code=2)
    return found


def _start(since: str | None) -> WatchStart:
    if since is None:
        return WatchStart()
    if _CURSOR.fullmatch(since):
        return WatchStart(cursor=since)
    return WatchStart(since=instant_option("--since", since))


def _open_source(address: str | None, key_file: Path | None) -> HomeSource | MirrorSource:
    if address is None:
        return HomeSource(locate_existing_home().warehouse)
    settings = read_settings()
    try:
        base_url = check_base_url(address)
    except ValueError as error:
        fail(f"--from: {error}", code=2)
    key = _key(settings, key_file)
    try:
        key = None if key is None else check_key(key)
    except ValueError as error:
        fail(f"{'ALMANAC_API_KEY' if key_file is None else '--key-file'}: {error}", code=2)
    return MirrorSource(base_url, key=key, trust=settings.network().trust())


def _key(settings: Settings, file: Path | None) -> SecretStr | None:
    if file is None:
        return settings.api_key if settings.base_url is None else None
    try:
        return SecretStr(file.read_text("utf-8").strip())
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        fail(f"--key-file: {file} can't be read: {why}", code=2)


def _is_reader_gone() -> bool:
    """Whether the reader closed the pipe, which ends the watch."""
    try:
        output = sys.stdout.fileno()
    except (OSError, ValueError):
        return False  # not a file, as in tests
    polled = select.poll()
    polled.register(output, 0)
    return any(state & (select.POLLERR | select.POLLHUP) for _, state in polled.poll(0))
