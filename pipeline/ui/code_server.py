"""Dagster's code server of the home, which pages and daemon share.

Sensors and schedules run in this process, each run in a child of it. Belongs here: starting it as
Dagster's own program does. Does not: restarting it (supervisor).
"""

from pathlib import Path
from typing import Final

from dagster._cli.api import grpc_command
from grpc import _common  # type: ignore[import-untyped]

from pipeline.ui.names import CODE_SERVER, LOCATION, MODULE, ProgramWords

_LOOK_EVERY_S: Final = 2.0
APPLICATION: Final = Path(__file__).parents[2]


def main(words: ProgramWords) -> None:
    """Serve until a signal ends it; runs in progress are signalled with it."""
    # The waiting thread looks ten times a second otherwise, a third of what this process takes at
    # idle. A signal wakes it all the same.
    _common.MAXIMUM_WAIT_TIMEOUT = _LOOK_EVERY_S
    grpc_command.main(
        [
            *("--socket", words.socket),
            *("--module-name", MODULE),
            *("--location-name", LOCATION),
            *("--log-format", words.log_format),
            # Dagster takes the first folder from the path, which may be that of the application,
            # and the folder of the caller must have no say in what is imported.
            *("--working-directory", str(APPLICATION)),
            "--use-python-environment-entry-point",
        ],
        prog_name=CODE_SERVER,
    )
