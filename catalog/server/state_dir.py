"""The folder in which a server keeps its keys, endpoints, deliveries and usage."""

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from catalog.server.accounts import JsonFile, KeyBook, ServiceDirError, UsageCounts
from catalog.server.webhooks import endpoints, outbox
from catalog.server.webhooks.endpoints import EndpointBook, Receivers
from catalog.server.webhooks.outbox import Outbox


class Source(msgspec.Struct, frozen=True):
    """The catalog that the deliveries and usage of a folder belong to."""

    source: str | None = None


class ServiceDir:
    """Names the files; makes the folder, readable by its owner alone, when first used."""

    def __init__(
        self, path: Path, *, wall: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self.path = path
        self._wall = wall
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ServiceDirError(f"the folder {path} can't be made: {error.strerror}") from error

    def key_book(self) -> KeyBook:
        return KeyBook(self.path / "keys.json", wall=self._wall)

    def endpoint_book(self) -> EndpointBook:
        return EndpointBook(
            self.path / endpoints.FILE_NAME, accounts=self.key_book(), wall=self._wall
        )

    def receivers(self) -> Receivers:
        return Receivers(self.endpoint_book(), self.key_book())

    def outbox(self) -> Outbox:
        return Outbox(self.path / outbox.FILE_NAME)

    def usage_file(self) -> JsonFile[UsageCounts]:
        return JsonFile(self.path / "usage.json", UsageCounts)

    def belongs_to(self, source: str) -> None:
        """Mark the folder as belonging to a source, or check that it does.

        Raises:
            ServiceDirError: it belongs to another source, whose deliveries and usage it keeps.
        """
        stamp = JsonFile(self.path / "source.json", Source)
        with stamp.editing() as edit:
            if edit.value.source not in (None, source):
                raise ServiceDirError(
                    f"{self.path} belongs to {edit.value.source}, not to {source}; give this "
                    "server another --dir"
                )
            edit.value = Source(source=source)

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Hold the folder as its only server: two would count and send everything twice.

        Raises:
            ServiceDirError: another server holds it, or this user can't write to it.
        """
        try:
            opened = (self.path / "server.lock").open("a")
        except OSError as error:
            raise ServiceDirError(
                f"the folder {self.path} can't be written to: {error.strerror}; give this server "
                "another --dir"
            ) from error
        with opened as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise ServiceDirError(
                    f"another server uses {self.path}; stop it, or give this server another --dir"
                ) from error
            yield
