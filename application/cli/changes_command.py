"""`almanac changes --follow` and `--post`: changes as JSON lines, and posts."""

import re
import select
import sys
import threading
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import typer
from pydantic import SecretStr

from almanac.command_line import stop_by_signals
from almanac.commands import locate_warehouse
from almanac.console import EXIT_INTERRUPTED, EXIT_USAGE, fail, people, warnings
from almanac.core.timestamps import utc_now
from almanac.reader import Reader
from application.cli.options import instant_option, settings_of
from application.console import print_json
from application.watch import (
    HomeSource,
    MirrorSource,
    WatchStart,
    make_change_filter,
    watch_changes,
)
from application.web.html_report import post_digest
from pipeline.home_location import locate_existing_home
from pipeline.secrecy import restrict_new_files
from pipeline.settings import read_settings
from resources.service_address import check_base_url, check_key

_CURSOR: Final = re.compile(r"[A-Za-z0-9_-]{19,4096}")


def post_changes(home: Path | None, filters: Mapping[str, Any]) -> None:
    """Post the changes since the last post with these filters to ALMANAC_DIGEST_URL."""
    restrict_new_files()
    settings = settings_of(home)
    posted = post_digest(settings, locate_existing_home(settings), utc_now(), **filters)
    nothing = "Nothing to post: nothing was published since the last post."
    people.print(f"Posted: {posted}." if posted else nothing, soft_wrap=True)


def follow_changes(
    home: Path | None,
    filters: Mapping[str, Any],
    since: str | None,
    *,
    once: bool,
    server: str | None,
    key_file: Path | None,
) -> None:
    """Print each change as a JSON line as it becomes known, of a home or of a mirror."""
    start = WatchStart()
    if since is not None and _CURSOR.fullmatch(since):
        start = WatchStart(cursor=since)
    elif since is not None:
        start = WatchStart(since=instant_option("--since", since))
    source: HomeSource | MirrorSource
    if server is None:
        warehouse = locate_warehouse(home)
        with closing(Reader(warehouse)) as reader:
            is_chosen = make_change_filter(reader, **filters)
        source = HomeSource(warehouse)
    else:
        is_chosen = make_change_filter(None, **filters)
        source = _open_mirror(server, key_file)
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
            if is_chosen(change):
                print_json(change)
            if stop.is_set():
                break
    if stop.is_set():
        raise typer.Exit(EXIT_INTERRUPTED)


def _open_mirror(address: str, key_file: Path | None) -> MirrorSource:
    settings, name = read_settings(), "--server"
    key = settings.api_key if settings.base_url is None else None
    try:
        base_url = check_base_url(address)
        name = "ALMANAC_API_KEY" if key_file is None else f"--key-file {key_file}"
        if key_file is not None:
            key = SecretStr(key_file.read_text("utf-8", "replace"))
        key = None if key is None else check_key(key)
    except OSError as error:
        fail(f"{name}: {error.strerror}", code=EXIT_USAGE)
    except ValueError as error:
        fail(f"{name}: {error}", code=EXIT_USAGE)
    return MirrorSource(base_url, key=key, trust=settings.network().trust())


def _is_reader_gone() -> bool:
    """Whether the reader closed the pipe, which ends the command."""
    try:
        output = sys.stdout.fileno()
    except (OSError, ValueError):
        return False  # not a file, as in tests
    polled = select.poll()
    polled.register(output, 0)
    return any(state & (select.POLLERR | select.POLLHUP) for _, state in polled.poll(0))
