"""The command line in this process, in its own folder and without settings."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from typer.testing import CliRunner

from almanac import console
from almanac.command_line import app
from pipeline.settings import describe_settings
from tests.in_process import own_process

Almanac = Callable[..., Any]
"""Runs a command: its words, the expected exit code or None for any, settings by short names."""


@pytest.fixture(scope="package", autouse=True)
def private_files() -> Iterator[None]:
    """Create private homes as a command does, so that only files that a test opens are reported."""
    before = os.umask(0o077)
    yield
    os.umask(before)


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    """Dagster's records, in memory."""
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


@pytest.fixture
def almanac(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Almanac:
    return command_line_in(tmp_path, tmp_path_factory.mktemp("machine"), monkeypatch)


def command_line_in(folder: Path, state: Path, monkeypatch: pytest.MonkeyPatch) -> Almanac:
    """Return the command line in a folder, with the state of its machine in another."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "200")
    for stream in (console.people, console.warnings):
        # A console made while COLUMNS was set keeps that width, as in the workers of xdist.
        monkeypatch.setattr(stream, "_width", None)
    for name, _, _ in describe_settings():
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    monkeypatch.setenv("ALMANAC_STATE", str(state))
    # The clocks of the tests' sandboxes are far from the machine's.
    monkeypatch.setenv("ALMANAC_MAX_CLOCK_SKEW_DAYS", "36500")
    monkeypatch.setenv("ALMANAC_EXPORT_INTERVAL_S", "0")

    def run(*words: str, code: int | None = 0, **given: str) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in given.items():
                patch.setenv(f"ALMANAC_{name.upper()}", value)
            with own_process():
                done = CliRunner().invoke(app, list(words))
        assert code is None or done.exit_code == code, done.output
        assert isinstance(done.exception, SystemExit | None)
        return done

    return run
