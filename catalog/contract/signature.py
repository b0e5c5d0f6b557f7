"""The webhook signature in the form of an endpoint (interface section 6, decisions).

    hex    lower-case hex of HMAC-SHA256 over the raw body
    t,v1   `t=<unix seconds>,v1=<hex>`, the hex of HMAC-SHA256 over `<t>.<raw body>`

While a secret rotates there are several values, or several `v1`, joined by a comma. Does not belong
here: what a receiver verifies (verification.py).
"""

import hashlib
import hmac
from collections.abc import Iterable
from datetime import datetime

from catalog.contract.decisions import SIGNATURE_FORMS, SignatureForm


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
