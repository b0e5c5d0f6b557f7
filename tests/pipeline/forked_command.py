"""A command in a process that is forked from that of the tests.

It has the streams, folder, environment, mask and exit of a process, without the start of one, which
takes 0.4 s, and 1.5 s with Dagster. For tests of what a command does; not for tests of its start:
what it imports, and signals meanwhile.
"""

import atexit
import os
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, NoReturn

from pipeline import console
from pipeline.cli.main import main
from tests.pipeline.homes.run_records import exit_code
from warehouse.files import file_modes


def completed(
    *words: str,
    cwd: Path,
    env: Mapping[str, str],
    umask: int = 0o022,
    stdout: IO[Any] | None = None,
    within_s: float = 120.0,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; what it prints into `stdout`, if given, is not returned."""
    with TemporaryFile() as printed, TemporaryFile() as errors:
        child = os.fork()
        if not child:
            _become(words, cwd, env, umask, stdout or printed, errors)
        code = exit_code(child, within_s=within_s)
        assert code is not None, f"{words} did not end within {within_s:g} s"
        texts = []
        for file in (printed, errors):
            file.seek(0)
            texts.append(file.read().decode())
    return subprocess.CompletedProcess(["almanac", *words], code, *texts)


def _become(
    words: tuple[str, ...],
    cwd: Path,
    env: Mapping[str, str],
    umask: int,
    stdout: IO[Any],
    stderr: IO[Any],
) -> NoReturn:
    """Take the place of a new process that runs a command."""
    code = 1
    try:
        atexit._clear()  # Those of the tests.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
            signal.signal(number, usual)
        os.chdir(cwd)
        os.environ.clear()
        os.environ.update(env)
        os.umask(umask)
        file_modes._usual = None  # The mask of the first command of a process.
        tempfile.tempdir = None  # It is kept from the first use.
        _redirect(stdout, stderr)
        sys.argv = ["almanac", *words]
        main()
        code = 0
    except SystemExit as ended:
        if isinstance(ended.code, str):
            sys.stderr.write(f"{ended.code}\n")
        else:
            code = ended.code or 0
    finally:
        if sys.exc_info()[0] is not None:
            traceback.print_exc()
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)


def _redirect(stdout: IO[Any], stderr: IO[Any]) -> None:
    stdin = os.open(os.devnull, os.O_RDONLY)
    for number, target in ((0, stdin), (1, stdout.fileno()), (2, stderr.fileno())):
        os.dup2(target, number)
    sys.stdin = sys.__stdin__ = os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = sys.__stdout__ = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = sys.__stderr__ = os.fdopen(2, "w", encoding="utf-8", closefd=False)
    for stream in (console.people, console.warnings):
        stream._width = None  # Of the tests' environment.
