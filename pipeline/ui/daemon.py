"""Dagster's daemon, and in the same process its pages.

They share a process, since both do little most of the time: apart they take twice the memory.
Belongs here: starting both as Dagster's own programs do, their end, the report of the daemon. Does
not: the pages (webserver), restarts (supervisor), what is loaded (workspace).
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Final

from dagster import DagsterInstance
from dagster._core.errors import DagsterUserCodeUnreachableError
from dagster._daemon.controller import (
    DagsterDaemonController,
    create_daemons_from_instance,
    get_daemon_statuses,
)
from dagster._grpc import server_watcher
from dagster._grpc.client import DagsterGrpcClient
from dagster._utils.log import configure_loggers

from pipeline.instance import plain_faults
from pipeline.runs.dead_runs import StartWatch, fail_dead_runs
from pipeline.session import home_of
from pipeline.settings import read_settings
from pipeline.ui.alive import REPORT_EVERY_S, report_alive
from pipeline.ui.names import PagesAddress, ProgramWords
from pipeline.ui.workspace import OwnLocation, SharedWorkspace
from resources.http.retries import utc_now
from warehouse.errors import RunRecordsBusy
from warehouse.home import Home

HEARTBEAT_S: Final = 60
_SILENT_AFTER_S: Final = 600
_CHECK_EVERY_S: Final = 5.0
_WATCH_EVERY_S: Final = 5.0
_CODE_WITHIN_S: Final = 90.0
_END_WITHIN_S: Final = 4.0


def main(words: ProgramWords) -> None:
    """Run until a signal.

    Raises:
        SystemExit: the pages can't be served, or a part of the daemon ended.
    """
    configure_loggers(formatter=words.log_format, log_level="INFO")
    # Else it asks the code server for its id every second; Dagster has no setting for it.
    server_watcher.WATCH_INTERVAL = _WATCH_EVERY_S  # type: ignore[assignment]
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    settings = read_settings()
    home = home_of(settings)
    with ExitStack() as stack:
        pages = None if words.pages is None else _listening(words.pages, stack)
        instance = stack.enter_context(DagsterInstance.get())
        # Without it, runs that no process announced are left to Dagster's own monitoring.
        runs = StartWatch() if settings.executor == "in_process" else None
        with plain_faults(home):
            fail_dead_runs(home, instance, runs)
        if not _code_server_answers(words.socket, stop):
            return
        read_only = words.pages is not None and words.pages.read_only
        workspace = stack.enter_context(
            SharedWorkspace(instance, _target(words, instance), pages_read_only=read_only)
        )
        # Leaving the block joins threads, one of which may be in a long call.
        stack.callback(_exit_within, _END_WITHIN_S)
        daemons = [stack.enter_context(daemon) for daemon in create_daemons_from_instance(instance)]
        controller = stack.enter_context(
            DagsterDaemonController(workspace, daemons, heartbeat_interval_seconds=HEARTBEAT_S)
        )
        if pages is not None:
            stack.enter_context(pages(workspace))
        watch = DaemonWatch(home, workspace, [daemon.daemon_type() for daemon in daemons])
        while not stop.wait(_CHECK_EVERY_S):
            controller.check_daemon_threads()
            watch.report()
            # The daemon may be in a long write; the next check is soon.
            with suppress(RunRecordsBusy), plain_faults(home):
                fail_dead_runs(home, instance, runs)


class DaemonWatch:
    """Reports that the daemon is alive, and what is at fault with it."""

    def __init__(self, home: Home, workspace: SharedWorkspace, daemons: Sequence[str]) -> None:
        self._home = home
        self._workspace = workspace
        self._daemons = daemons
        self._silent: list[str] = []
        self._reported_at = self._looked_at = -REPORT_EVERY_S
        self._began_at = monotonic()
        self.report()

    def report(self) -> None:
        """Write the report, if it is time to."""
        now = monotonic()
        if now - self._reported_at < REPORT_EVERY_S:
            return
        if now - self._began_at > _SILENT_AFTER_S and now - self._looked_at > HEARTBEAT_S:
            self._silent, self._looked_at = self._silent_daemons(), now
        report_alive(self._home, [*self._silent, *self._code_faults()], utc_now())
        self._reported_at = now

    def _silent_daemons(self) -> list[str]:
        statuses = get_daemon_statuses(
            self._workspace.instance,
            self._daemons,
            ignore_errors=True,
            heartbeat_interval_seconds=HEARTBEAT_S,
            heartbeat_tolerance_seconds=_SILENT_AFTER_S,
        )
        return [
            f"{name} has not reported for {_SILENT_AFTER_S} s."
            for name, status in statuses.items()
            if not status.healthy
        ]

    def _code_faults(self) -> list[str]:
        names = self._workspace.code_location_names
        return [
            f"The code location {name} is not loaded; its page says why."
            for name in names
            if not self._workspace.has_code_location(name)
        ]


def _target(words: ProgramWords, instance: DagsterInstance) -> OwnLocation:
    return OwnLocation(Path(words.socket), Path(instance.root_directory) / "workspace.yaml")


def _listening(
    address: PagesAddress, stack: ExitStack
) -> Callable[[SharedWorkspace], AbstractContextManager[object]]:
    """Bind the address of the pages; return how to serve them."""
    # Imported here: without pages this process needs no GraphQL.
    from pipeline.ui.webserver import listening, serving

    bound = stack.enter_context(listening(address))
    return partial(serving, address, bound)


def _code_server_answers(socket: str, stop: threading.Event) -> bool:
    """Wait until the code server answers; return whether it does, or a signal came."""
    client = DagsterGrpcClient(socket=socket)
    give_up_at = monotonic() + _CODE_WITHIN_S
    while not stop.wait(0.2):
        try:
            client.ping("")
        except DagsterUserCodeUnreachableError as error:
            if monotonic() > give_up_at:
                sys.exit(f"the code server does not answer: {error}")
        else:
            return True
    return False


def _exit_within(seconds: float) -> None:
    timer = threading.Timer(seconds, os._exit, (0,))
    timer.daemon = True
    timer.start()
