"""What Dagster's pages and daemon load: the code server of the home, and locations of the user.

A `workspace.yaml` in the folder of the Dagster instance adds code locations; it is read, never
written. Belongs here: the locations, and requests that may only read. Does not: starting the code
server (code_server, supervisor).
"""

from collections.abc import Sequence
from pathlib import Path

from dagster import DagsterInstance
from dagster._core.remote_origin import CodeLocationOrigin, GrpcServerCodeLocationOrigin
from dagster._core.workspace.context import WorkspaceProcessContext, WorkspaceRequestContext
from dagster._core.workspace.load_target import WorkspaceFileTarget, WorkspaceLoadTarget
from dagster_webserver.version import __version__

from pipeline.ui.names import LOCATION


class OwnLocation(WorkspaceLoadTarget):
    """The code server at a socket, and the locations of a file, except for one of its name."""

    def __init__(self, socket: Path, file: Path) -> None:
        self._socket = socket
        self._file = file

    @property
    def origin(self) -> GrpcServerCodeLocationOrigin:
        return GrpcServerCodeLocationOrigin(
            host="localhost", socket=str(self._socket), location_name=LOCATION
        )

    def create_origins(self) -> Sequence[CodeLocationOrigin]:
        others: Sequence[CodeLocationOrigin] = ()
        if self._file.exists():
            others = WorkspaceFileTarget([str(self._file)]).create_origins()
        return [self.origin, *(other for other in others if other.location_name != LOCATION)]


class SharedWorkspace(WorkspaceProcessContext):
    """The locations as pages and daemon share them; requests of the pages may be read-only."""

    def __init__(
        self, instance: DagsterInstance, target: WorkspaceLoadTarget, *, pages_read_only: bool
    ) -> None:
        self._pages_read_only = pages_read_only
        super().__init__(instance, target, version=__version__)

    def create_request_context(self, source: object | None = None) -> WorkspaceRequestContext:
        # A request of the pages has a source, one of the daemon has none.
        return WorkspaceRequestContext(
            instance=self.instance,
            current_workspace=self.get_current_workspace(),
            process_context=self,
            version=self.version,
            source=source,
            read_only=self._pages_read_only and source is not None,
        )
