"""Dagster's code server of the home, which pages and daemon share.

Sensors and schedules run in this process, each run in a child of it. Belongs here: starting it as
Dagster's own program does. Does not: restarting it (supervisor).
"""

from dagster._cli.api import grpc_command

from pipeline.ui.names import CODE_SERVER, LOCATION, MODULE, ProgramWords


def main(words: ProgramWords) -> None:
    """Serve until a signal ends it; runs in progress are signalled with it."""
    grpc_command.main(
        [
            *("--socket", words.socket),
            *("--module-name", MODULE),
            *("--location-name", LOCATION),
            *("--log-format", words.log_format),
            # The folder of the caller has no say in what is imported.
            "--empty-working-directory",
            "--use-python-environment-entry-point",
        ],
        prog_name=CODE_SERVER,
    )
