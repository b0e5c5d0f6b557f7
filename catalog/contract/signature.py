"""The webhook signature in the form of an endpoint (interface section 6, decisions).

    hex    lower-case hex of HMAC-SHA256 over the raw body
    t,v1   `t=<unix seconds>,v1=<hex>`, the hex of HMAC-SHA256 over `<t>.<raw body>`

While a secret rotates there are several values, or several `v1`, joined by a comma. Verify the raw
bytes before anything parses them.
"""

import hashlib
import hmac
from collections.abc import Iterable
from datetime import datetime

from catalog.contract.decisions import SIGNATURE_FORMS, SIGNATURE_TOLERANCE_S, SignatureForm


class SignatureRejected(Exception):
    """A delivery whose signature is not valid; its body must not be trusted."""


def sign(
    body: bytes, *, secrets: Iterable[str], at: datetime, form: SignatureForm = SIGNATURE_FORMS[0]
) -> str:
    """Return the header's value for a raw body, with one digest per secret.

    Only the form `t,v1` has the time in it.
    """
    timestamp = str(int(at.timestamp()))
    stamped = form == "t,v1"
    digests = [
        f"v1={_digest(secret, timestamp, body)}" if stamped else _hex(secret, body)
        for secret in secrets
    ]
    if not digests:
        raise ValueError("sign() needs at least one secret, got none")
    return ",".join([f"t={timestamp}", *digests] if stamped else digests)


def _hex(secret: str, message: bytes) -> str:
    return hmac.new(secret.encode(), message, hashlib.sha256).hexdigest()


def _digest(secret: str, timestamp: str, body: bytes) -> str:
    return _hex(secret, timestamp.encode() + b"." + body)


def _parse(header: str) -> tuple[str, list[str]]:
    timestamps: list[str] = []
    digests: list[str] = []
    for part in header.split(","):
        name, _, value = part.strip().partition("=")
        if name == "t":
            timestamps.append(value)
        elif name == "v1":
            digests.append(value)
    stamp = timestamps[0] if len(timestamps) == 1 else ""
    # isdecimal() alone admits other scripts' digits, which the sender never signs.
    if not (stamp.isascii() and stamp.isdecimal() and len(stamp) <= 12) or not digests:
        raise SignatureRejected("the signature header is not of the form t=<seconds>,v1=<hex>")
    return stamp, digests


def verify(
    header: str,
    body: bytes,
    *,
    secrets: Iterable[str],
    now: datetime,
    tolerance_s: float = SIGNATURE_TOLERANCE_S,
) -> None:
    """Return if any secret signed this raw body within the tolerance of `now`.

    Every secret is compared with every `v1`, in constant time, also after a match.

    Raises:
        SignatureRejected: the header is malformed, too old, from the future, or no secret matches.
    """
    timestamp, digests = _parse(header)
    if abs(now.timestamp() - int(timestamp)) > tolerance_s:
        raise SignatureRejected(f"the signature's time is more than {tolerance_s:g} s away")
    matched = False
    for secret in secrets:
        expected = _digest(secret, timestamp, body).encode()
        for digest in digests:
            # Bytes: compare_digest refuses text that is not ASCII.
            matched |= hmac.compare_digest(expected, digest.encode("utf-8", "surrogatepass"))
    if not matched:
        raise SignatureRejected("no signing secret matches the signature")
