"""The folder in which a server keeps its keys, endpoints, deliveries and usage."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from almanac.core.files import try_lock
from almanac.core.timestamps import utc_now
from catalog import ServerError
from catalog.server.accounts import JsonFile, KeyBook, UsageBook, UsageCounts
from catalog.server.webhooks import endpoints, outbox
from catalog.server.webhooks.endpoints import EndpointBook
from catalog.server.webhooks.outbox import Outbox


class ServiceDir:
    """Names the files; makes the folder, readable by its owner alone, when first used."""

    def __init__(self, path: Path, *, wall: Callable[[], datetime] = utc_now) -> None:
        self.path = path
        self._wall = wall
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ServerError(
                f"the folder {path} can't be made: {error.strerror}; give this server another --dir"
            ) from error

    def key_book(self, **options: Any) -> KeyBook:
        """Return the keys of the folder; `options` are those of KeyBook."""
        return KeyBook(self.path / "keys.json", wall=self._wall, **options)

    def endpoint_book(self) -> EndpointBook:
        return EndpointBook(
            self.path / endpoints.FILE_NAME, accounts=self.key_book(), wall=self._wall
        )

    def outbox(self) -> Outbox:
        return Outbox(self.path / outbox.FILE_NAME)

    def usage_book(self) -> UsageBook:
        return UsageBook(JsonFile(self.path / "usage.json", UsageCounts))

    def claim_for(self, source: str) -> None:
        """Mark the folder as belonging to a source, or check that it does.

        Raises:
            ServerError: it belongs to another source, whose deliveries and usage it keeps.
        """
        file = JsonFile(self.path / "source.json", dict[str, str])
        file.change(lambda known: {"source": source, **known})
        if (known := file.read()["source"]) != source:
            raise ServerError(
                f"{self.path} belongs to {known}, not to {source}; give this server another --dir"
            )

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Lock the folder for one server: a second would send each webhook again.

        Raises:
            ServerError: another server holds it, or this user can't write to it.
        """
        try:
            opened = (self.path / "server.lock").open("a")
        except OSError as error:
            raise ServerError(
                f"the folder {self.path} can't be written to: {error.strerror}; give this server "
                "another --dir"
            ) from error
        with opened as lock:
            if not try_lock(lock):
                raise ServerError(
                    f"another server uses {self.path}; stop it, or give this server another --dir"
                )
            yield
