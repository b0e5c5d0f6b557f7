"""The verifier of the settings, made anew when the file of the secrets changes.

So a secret is rotated without a restart. Belongs here: when it is read. Does not: the settings.
"""

import logging
from collections.abc import Callable
from time import monotonic
from typing import Final

from catalog.contract.signatures import Verifier
from pipeline.settings import Settings, SettingsError

_LOOK_EVERY_S: Final = 1.0

log = logging.getLogger(__name__)


class CurrentVerifier:
    """Returns the verifier of the secrets as they are now.

    A file that can't be read or has no secret leaves the last verifier in use, and is logged.

    Raises:
        SettingsError: at the start, no secret is set or one can't be used.
    """

    def __init__(self, settings: Settings, *, seconds: Callable[[], float] = monotonic) -> None:
        self._settings = settings
        self._seconds = seconds
        self._looked_at = seconds()
        self._mark = self._file_mark()
        self._verifier = self._made()

    def __call__(self) -> Verifier:
        now = self._seconds()
        if now - self._looked_at >= _LOOK_EVERY_S:
            self._looked_at = now
            if (mark := self._file_mark()) != self._mark:
                self._mark = mark
                self._read_again()
        return self._verifier

    def _read_again(self) -> None:
        try:
            self._verifier = self._made()
        except SettingsError as error:
            log.error("The signing secrets before stay in use: %s", error)
            return
        log.warning("The signing secrets were read again: their file changed.")

    def _made(self) -> Verifier:
        settings = self._settings
        secrets = settings.signing_secrets()
        if not secrets:
            raise SettingsError(
                "no signing secret is set, so no webhook could be verified. Nothing was started; "
                "set ALMANAC_WEBHOOK_SECRETS_FILE to a file with the secret that the service shows "
                "for the endpoint."
            )
        try:
            return Verifier(
                [secret.get_secret_value() for secret in secrets],
                forms=settings.signature_forms,
                header=settings.signature_header,
            )
        except ValueError as error:
            raise SettingsError(
                f"ALMANAC_WEBHOOK_SECRETS or ALMANAC_SIGNATURE_FORMS can't be used: {error}"
            ) from error

    def _file_mark(self) -> tuple[int, int, int]:
        file = self._settings.webhook_secrets_file
        try:
            stat = None if file is None else file.stat()
        except OSError:
            return -1, 0, 0
        return (0, 0, 0) if stat is None else (stat.st_ino, stat.st_mtime_ns, stat.st_size)
