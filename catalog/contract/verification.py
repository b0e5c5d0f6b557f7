"""Verifies the signature of a webhook over its raw body (interface section 6, decisions)."""

import hashlib
import hmac
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from catalog.contract.decisions import SIGNATURE_HEADER, SIGNATURE_TOLERANCE_S
from catalog.contract.signature import SignatureRejected, verify

FORMS: Final = ("hex", "t,v1")


@dataclass(frozen=True, slots=True)
class Verified:
    """The form of a valid signature, and the id that is signed in a header, if there is one."""

    form: str
    message_id: str | None = None


class Verifier:
    """Verifies with any of the secrets."""

    def __init__(
        self,
        secrets: Sequence[str],
        *,
        forms: Collection[str] = FORMS,
        tolerance_s: float = SIGNATURE_TOLERANCE_S,
        header: str = SIGNATURE_HEADER,
    ) -> None:
        self._secrets = tuple(secrets)
        self._forms = frozenset(forms)
        self._tolerance_s = tolerance_s
        self._header = header.lower().encode()

    def verify(
        self, headers: Sequence[tuple[bytes, bytes]], body: bytes, *, now: datetime
    ) -> Verified:
        """Return the form of the signature. Raises SignatureRejected."""
        values = [value for name, value in headers if name.lower() == self._header]
        if len(values) != 1:
            raise SignatureRejected("several" if values else "missing")
        if values[0].startswith(b"t="):
            text = values[0].decode("latin-1")
            verify(text, body, secrets=self._secrets, now=now, tolerance_s=self._tolerance_s)
            return Verified("t,v1")
        for secret in self._secrets:
            expected = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest().encode()
            for value in values[0].split(b","):
                if hmac.compare_digest(expected, value.strip()):
                    return Verified("hex")
        raise SignatureRejected("mismatch")
