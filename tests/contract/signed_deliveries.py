"""Deliveries signed in each form, and mutations of them, for tests of verification.

Belongs here: signing without the code of the product, random changes of headers and body, and
which of them leave the meaning as it was.
"""

import base64
import hashlib
import hmac
import random
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime

from catalog.contract.constants import AcceptedForm

Headers = list[tuple[bytes, bytes]]
NOW = datetime(2026, 10, 8, 12, 0, tzinfo=UTC)
BODY = '{"id":"evt_dlv_1","type":"events.updated","data":{"id":"e1","title":"é"}}'.encode()
SECRET = "whsec_" + base64.b64encode(b"the key of this endpoint").decode()
OTHER_SECRET = "another secret"
MESSAGE_ID = b"msg_1"


def mac(key: bytes, message: bytes) -> bytes:
    return hmac.new(key, message, hashlib.sha256).digest()


def standard_key(secret: str) -> bytes:
    if secret.startswith("whsec_"):
        return base64.b64decode(secret.removeprefix("whsec_"))
    return secret.encode()


def signed(
    form: AcceptedForm,
    body: bytes = BODY,
    *,
    secrets: Sequence[str] = (SECRET,),
    stamp: bytes = b"%d" % NOW.timestamp(),
) -> Headers:
    """Return the headers of a delivery, as an ASGI server passes them on."""
    keys = [secret.encode() for secret in secrets]
    if form == "hex":
        value = b",".join(mac(key, body).hex().encode() for key in keys)
    elif form == "base64":
        value = b",".join(base64.b64encode(mac(key, body)) for key in keys)
    elif form == "t,v1":
        digests = [mac(key, stamp + b"." + body).hex().encode() for key in keys]
        value = b",".join([b"t=" + stamp, *(b"v1=" + digest for digest in digests)])
    else:
        message = MESSAGE_ID + b"." + stamp + b"." + body
        macs = [mac(standard_key(secret), message) for secret in secrets]
        return [
            (b"webhook-id", MESSAGE_ID),
            (b"webhook-timestamp", stamp),
            (b"webhook-signature", b" ".join(b"v1," + base64.b64encode(digest) for digest in macs)),
        ]
    return [(b"svc-signature", value)]


def mutations(seed: int, count: int, form: AcceptedForm) -> Iterator[tuple[Headers, bytes]]:
    """Yield genuine deliveries with one to three random changes, of headers or body."""
    chance = random.Random(f"{seed}/{form}")
    for _ in range(count):
        headers: Headers = [(b"host", b"almanac"), *signed(form)]
        body = BODY
        for _ in range(chance.choice((1, 1, 1, 2, 3))):
            place = chance.randrange(len(headers)) if headers else 0
            kind = chance.randrange(10)
            if kind < 5 and headers:
                name, value = headers[place]
                headers[place] = (name, chance.choice(_CHANGES)(chance, value))
            elif kind == 5 and headers:
                name, value = headers[place]
                headers[place] = (chance.choice(_CHANGES)(chance, name), value)
            elif kind == 6 and headers:
                headers.append(headers.pop(place) if chance.random() < 0.3 else headers[place])
            elif kind == 7 and headers:
                del headers[place]
            elif kind == 8:
                headers += signed(chance.choice(("hex", "t,v1", "base64", "standard")), b"{}")
            else:
                body = chance.choice(_CHANGES)(chance, body)
        yield headers, body


def mean_the_same(form: AcceptedForm, headers: Headers, body: bytes) -> bool:
    """Whether mutated headers still have what was signed: written in other letters, or more."""
    found: dict[bytes, list[bytes]] = {}
    for name, value in headers:
        found.setdefault(name.lower(), []).append(value.strip(b" \t"))
    for name, value in signed(form):
        if name.startswith(b"webhook-") and not name.endswith(b"signature"):
            if found.get(name) != [value]:
                return False
            continue
        genuine = {_plain(part, form) for part in value.split(b",")}
        separator = b" " if form == "standard" else b","
        if form == "standard":
            genuine = {value}
        parts = found.get(name, [b""])[0].split(separator)
        if len(found.get(name, [])) != 1 or not genuine <= {_plain(part, form) for part in parts}:
            return False
    return body == BODY


def _plain(part: bytes, form: AcceptedForm) -> bytes:
    part = part.strip(b" \t")
    if form == "hex":
        return part.removeprefix(b"sha256=").lower()
    return b"v1=" + part[3:].lower() if part.startswith(b"v1=") else part


Change = Callable[[random.Random, bytes], bytes]


def _flip(chance: random.Random, value: bytes) -> bytes:
    if not value:
        return b"\xff"
    place = chance.randrange(len(value))
    return value[:place] + bytes([value[place] ^ 1 << chance.randrange(8)]) + value[place + 1 :]


def _insert(chance: random.Random, value: bytes) -> bytes:
    place = chance.choice((0, len(value), chance.randrange(len(value) + 1)))
    return value[:place] + chance.choice(_PIECES) + value[place:]


def _delete(chance: random.Random, value: bytes) -> bytes:
    start = chance.randrange(len(value) + 1)
    return value[:start] + value[start + chance.randrange(1, 9) :]


def _replace(chance: random.Random, value: bytes) -> bytes:
    return chance.choice((chance.randbytes(len(value)), chance.choice(_PIECES), b""))


def _letters(chance: random.Random, value: bytes) -> bytes:
    return chance.choice((value.upper(), value.lower(), value.swapcase()))


_PIECES = (
    *(b" ", b"\t", b",", b"=", b".", b"\0", b"\n", b"\r\n", b"\xc3\xa9", b"\xff", b"\xef\xbb\xbf"),
    *(b"0", b"t=", b"v1=", b"v1,", b"sha256=", b"t=1759920000,", b"," * 3_000, b"0" * 64, b"{"),
    b"%d." % NOW.timestamp(),
)
_CHANGES: tuple[Change, ...] = (_flip, _insert, _delete, _replace, _letters)
