"""Webhook signatures: signed by the service, verified by a receiver (interface section 6).

    hex        `<hex>` of HMAC-SHA256 over the raw body; also in capitals, or behind `sha256=`
    base64     `<base64>` of the same
    t,v1       `t=<unix seconds>,v1=<hex>`, over `<t>.<raw body>`

The service signs in the form `hex` or `t,v1`. A receiver tells the form from the shape of the
header: no value has two shapes. While a secret rotates, several values are joined by a comma.

A signature can't be moved to another form. `hex` and `base64` are one signature in two spellings.
The signed message of `t,v1`, which is `<t>.` and the body, would also be valid as a body signed as
`hex`. So every form refuses a body that begins with `<t>.`, as a JSON object never does.

Times are UTC, durations seconds.
"""

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final, Literal, NamedTuple

from catalog.contract.constants import (
    SIGNATURE_FORMS,
    SIGNATURE_HEADER,
    SIGNATURE_TOLERANCE_S,
    AcceptedForm,
    SignatureForm,
)


def sign(
    body: bytes, *, secrets: Iterable[str], at: datetime, form: SignatureForm = SIGNATURE_FORMS[0]
) -> str:
    """Return the header's value for a raw body, with one digest per secret.

    Only the form `t,v1` has the time in it.
    """
    timestamp = str(int(at.timestamp()))
    stamped = form == "t,v1"
    message = timestamp.encode() + b"." + body if stamped else body
    digests = [_hex_digest(secret, message) for secret in secrets]
    if not digests:
        raise ValueError("sign() needs at least one secret, got none")
    return ",".join([f"t={timestamp}", *(f"v1={each}" for each in digests)] if stamped else digests)


def _hex_digest(secret: str, message: bytes) -> str:
    return hmac.new(secret.encode(), message, hashlib.sha256).hexdigest()


Headers = Sequence[tuple[bytes, bytes]]
RejectionReason = Literal["missing", "several", "malformed", "mismatch", "stale"]

SECRETS_MAX: Final = 8
HEADER_BYTES_MAX: Final = 2_048
VALUES_MAX: Final = 8
_BLANK: Final = b" \t"
_TEXT: Final = re.compile(rb"[ -~\t]*")
_HEX: Final = re.compile(rb"[0-9A-Fa-f]{64}")
_BASE64: Final = re.compile(rb"[A-Za-z0-9+/]{43}=")
_PREFIX: Final = re.compile(rb"\Asha256[= ]", re.IGNORECASE)
_SECONDS: Final = re.compile(rb"[0-9]{1,20}")
_STAMPED_MESSAGE: Final = re.compile(rb"[0-9]+\.")


class SignatureRejected(Exception):
    """A delivery whose signature is not valid: its body must not be trusted.

    missing       no signature
    several       more than one header with a signature
    malformed     the header has no known form, or is too long
    mismatch      no secret made this signature of this body
    stale         genuine, but made too long ago, or too far ahead
    """

    def __init__(self, reason: RejectionReason) -> None:
        super().__init__(reason)
        self.reason: Final = reason


class _Claim(NamedTuple):
    """The claim of a header: values in lower-case hex or in base64, over `prefix` and the body."""

    form: AcceptedForm
    values: tuple[bytes, ...]
    prefix: bytes = b""
    seconds: int | None = None


class Verifier:
    """Verifies deliveries to one endpoint. `secrets` has several while one rotates."""

    def __init__(self, secrets: Iterable[str], *, header: str = SIGNATURE_HEADER) -> None:
        """Keep the keys of some secrets.

        Raises:
            ValueError: nothing could be verified, or anything. The message has no secret in it.
        """
        self._header = header.lower().encode("ascii")
        texts = tuple(secrets)
        if not 1 <= len(texts) <= SECRETS_MAX:
            raise ValueError(f"secrets: expected 1 to {SECRETS_MAX}, got {len(texts)}")
        self._keys = tuple(_key(text) for text in texts)

    def check_head(self, headers: Headers) -> None:
        """Check that the headers have one signature, before a body is read.

        Raises:
            SignatureRejected: no body could be genuine under these headers.
        """
        self._claim(headers)

    def verify(self, headers: Headers, body: bytes, *, now: datetime) -> AcceptedForm:
        """Return the form of a genuine signature; `headers` are the raw bytes.

        A time up to SIGNATURE_TOLERANCE_S in the past or future is accepted.

        Raises:
            SignatureRejected: it is not genuine, or not of now; its `reason` says which.
        """
        claim = self._claim(headers)
        matches = self._matches(claim, body)
        if _STAMPED_MESSAGE.match(body) or not matches:
            raise SignatureRejected("mismatch")
        off_s = 0.0 if claim.seconds is None else abs(now.timestamp() - claim.seconds)
        if off_s > SIGNATURE_TOLERANCE_S:
            raise SignatureRejected("stale")
        return claim.form

    def _claim(self, headers: Headers) -> _Claim:
        found = [value for name, value in headers if name.lower() == self._header]
        if len(found) != 1:
            raise SignatureRejected("several" if found else "missing")
        return _claim_of(found[0])

    def _matches(self, claim: _Claim, body: bytes) -> bool:
        """Compare every value with every key, even after a match, so that timing does not reveal
        the key."""
        encode = base64.b64encode if claim.form == "base64" else binascii.hexlify
        matched = False
        for key in self._keys:
            expected = encode(hmac.digest(key, claim.prefix + body, "sha256"))
            for value in claim.values:
                matched |= hmac.compare_digest(expected, value)
        return matched


def _key(secret: str) -> bytes:
    try:
        key = secret.encode()
    except UnicodeEncodeError:
        # Without its cause, which has the secret in it.
        raise ValueError("secrets: one has half of a surrogate pair") from None
    # HMAC pads a key with NUL: one of NUL alone is the empty key, which everyone knows.
    if not key.strip(b"\0 \t\r\n"):
        raise ValueError("secrets: one is empty")
    return key


def _claim_of(value: bytes) -> _Claim:
    """Return the claim of a header, whose shape is its form."""
    if len(value) > HEADER_BYTES_MAX or _TEXT.fullmatch(value) is None:
        raise SignatureRejected("malformed")
    parts = [part.strip(_BLANK) for part in value.split(b",")]
    if any(part.startswith((b"t=", b"v1=")) for part in parts):
        return _stamped_claim(parts)
    if len(parts) > VALUES_MAX:
        raise SignatureRejected("malformed")
    if all(map(_BASE64.fullmatch, parts)):
        return _Claim("base64", tuple(parts))
    return _Claim("hex", tuple(_hex(_PREFIX.sub(b"", part)) for part in parts))


def _stamped_claim(parts: list[bytes]) -> _Claim:
    """Return the claim of `t=…,v1=…` in any order; parts of other names are ignored."""
    stamps = [part[2:] for part in parts if part.startswith(b"t=")]
    values = [part[3:] for part in parts if part.startswith(b"v1=")]
    if len(stamps) != 1 or not 1 <= len(values) <= VALUES_MAX:
        raise SignatureRejected("malformed")
    digests = tuple(map(_hex, values))
    return _Claim("t,v1", digests, stamps[0] + b".", _seconds(stamps[0]))


def _hex(value: bytes) -> bytes:
    if _HEX.fullmatch(value) is None:
        raise SignatureRejected("malformed")
    return value.lower()


def _seconds(stamp: bytes) -> int:
    """Return unix seconds. A time in milliseconds is read as seconds far in the future, so it is
    stale."""
    if _SECONDS.fullmatch(stamp) is None:
        raise SignatureRejected("malformed")
    return int(stamp)
