"""A receiver accepts what the holder of a secret signed, in a form it allows, and nothing else.

The tests sign without the code of the product.
"""

import base64
import hashlib
import hmac
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.contract import signatures
from catalog.contract.constants import ACCEPTED_FORMS, SIGNATURE_FORMS, AcceptedForm, SignatureForm
from catalog.contract.signatures import SignatureRejected, Verifier, sign

Headers = list[tuple[bytes, bytes]]
NOW = datetime(2026, 10, 8, 12, 0, tzinfo=UTC)
STAMP = b"%d" % NOW.timestamp()
BODY = '{"id":"evt_dlv_1","type":"events.updated","data":{"id":"e1","title":"é"}}'.encode()
SECRET = "whsec_the-key-of-this-endpoint"
OTHER_SECRET = "another secret"


def mac(key: bytes, message: bytes) -> bytes:
    return hmac.new(key, message, hashlib.sha256).digest()


def own(value: bytes) -> Headers:
    return [(b"svc-signature", value)]


def signed(
    form: AcceptedForm,
    body: bytes = BODY,
    *,
    secrets: Sequence[str] = (SECRET,),
    stamp: bytes = STAMP,
) -> Headers:
    """Return the headers of a delivery, as an ASGI server passes them on."""
    keys = [secret.encode() for secret in secrets]
    if form == "hex":
        return own(b",".join(mac(key, body).hex().encode() for key in keys))
    if form == "base64":
        return own(b",".join(base64.b64encode(mac(key, body)) for key in keys))
    digests = [mac(key, stamp + b"." + body).hex().encode() for key in keys]
    return own(b",".join([b"t=" + stamp, *(b"v1=" + digest for digest in digests)]))


ALL = Verifier([SECRET])
HEX, BASE64 = signed("hex")[0][1], signed("base64")[0][1]
V1 = signed("t,v1")[0][1].partition(b"v1=")[2]


def outcome(
    headers: Iterable[tuple[bytes, bytes]],
    body: bytes = BODY,
    *,
    verifier: Verifier = ALL,
    now: datetime = NOW,
) -> str:
    """Return the form of an accepted delivery, or the reason why it is rejected."""
    try:
        return verifier.verify(list(headers), body, now=now)
    except SignatureRejected as error:
        assert str(error) == error.reason
        return error.reason


@pytest.mark.parametrize("form", ACCEPTED_FORMS)
def test_a_genuine_delivery_is_accepted_in_each_form(form: AcceptedForm) -> None:
    assert outcome(signed(form)) == form


def test_a_published_example_is_accepted() -> None:
    """RFC 4231, test case 2."""
    digest = b"5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
    verifier = Verifier(["Jefe"])
    assert outcome(own(digest), b"what do ya want for nothing?", verifier=verifier) == "hex"


def test_a_signature_in_another_spelling_is_accepted() -> None:
    for value in (
        HEX.upper(),
        *(prefix + HEX for prefix in (b"sha256=", b"SHA256=", b"sha256 ")),
        b" \t" + HEX + b" ",
        HEX + b" , sha256=" + b"0" * 64,
    ):
        assert outcome(own(value)) == "hex", value
    for headers, form in (
        (own(BASE64 + b"," + b"A" * 43 + b"="), "base64"),
        ([(b"SVC-Signature", HEX)], "hex"),
        (own(b"v1=" + V1.upper() + b" , v0=x, t=" + STAMP + b",flag"), "t,v1"),
    ):
        assert outcome(headers) == form, headers


WRONG: dict[str, list[Headers]] = {
    "missing": [[(b"host", b"almanac")], [(b"webhook-signature", HEX)]],
    "several": [
        *(own(HEX) * 2, [*own(b"0" * 64), *own(HEX)], [*own(HEX), *own(b"")]),
        [*own(HEX), (b"SVC-SIGNATURE", HEX)],
    ],
    "mismatch": [
        *map(own, (b"0" * 64, BASE64[:42] + b"B=", b"t=" + STAMP + b",v1=" + HEX)),
        *(own(b"t=" + t + b",v1=" + V1) for t in (b"9" * 20, b"0" + STAMP, STAMP[:-1] + b"9")),
    ],
    "malformed": [
        # One value without a time: its length, letters, prefix, and how it is encoded.
        *map(
            own, (b"", b",", HEX[:-1], HEX + b"0", b"g" + HEX[1:], HEX + b",", HEX + b"," + BASE64)
        ),
        *map(own, (b"sha256=", b"sha256=sha256=" + HEX, b"sha512=" + HEX, b",".join([HEX] * 9))),
        *map(own, (BASE64.rstrip(b"="), b"-_" + BASE64[2:], base64.b64encode(HEX))),
        *map(own, (HEX + "é".encode(), b"\xff" + HEX, HEX.replace(b"0", "\uff10".encode()))),
        *map(own, (HEX + b"\0", HEX[:32] + b"\0" + HEX[32:], HEX + b"\n")),
        # With a time: its parts, their number, and its digits.
        *map(own, (b"t=" + STAMP, b"v1=" + V1, b"t=" + STAMP + b"," + HEX)),
        *(own(b"t=" + STAMP + rest) for rest in (b",v2=" + V1, (b",v1=" + V1) * 9, b",v1=")),
        *(own(b"t=" + STAMP + b",v1=" + v1) for v1 in (V1[:8], b"sha256=" + V1)),
        own(b"v1=" + V1 + b",t=" + STAMP + b",x" * 1_000),
        *(
            own(b"t=" + t + b",v1=" + V1)
            for t in (b"", b"-1", b"+" + STAMP, STAMP + b".0", b"0x10", b"9" * 1_000)
        ),
        *(own(b"t=" + t + b",v1=" + V1) for t in ("١".encode(), STAMP + b",t=" + STAMP)),
        own(b"v1," + BASE64),
    ],
}


def test_a_wrong_signature_is_rejected_with_its_reason() -> None:
    for reason, wrong in WRONG.items():
        for headers in wrong:
            assert outcome(headers) == reason, headers


@pytest.mark.parametrize("form", ACCEPTED_FORMS)
def test_the_raw_bytes_of_the_body_are_what_is_verified(form: AcceptedForm) -> None:
    others = (b" " + BODY, BODY + b"\n", BODY.replace(b":", b": "), BODY[:-1], b"", BODY * 2)
    for body in (*others, b"\xef\xbb\xbf" + BODY, BODY.replace("é".encode(), b"\\u00e9")):
        assert outcome(signed(form), body) == "mismatch"
    assert outcome(signed(form, b""), b"") == form
    assert outcome(signed(form, b"\xff\0"), b"\xff\0") == form


def test_a_time_counts_both_ways_up_to_the_tolerance() -> None:
    for side in (1, -1):
        for off_s, expected in ((0, "t,v1"), (300, "t,v1"), (300.5, "stale"), (10**8, "stale")):
            assert outcome(signed("t,v1"), now=NOW + side * timedelta(seconds=off_s)) == expected
    for stamp in (STAMP + b"000", b"9" * 20, b"0"):
        assert outcome(signed("t,v1", stamp=stamp)) == "stale"
    assert outcome(signed("t,v1", secrets=["guessed"], stamp=b"1")) == "mismatch"


@pytest.mark.parametrize("form", ACCEPTED_FORMS)
def test_one_secret_in_common_is_enough_while_a_secret_rotates(form: AcceptedForm) -> None:
    names = (SECRET, OTHER_SECRET, "third")
    some = (*permutations(names, 1), *permutations(names, 2))
    for known in some:
        verifier = Verifier(known)
        for signing in some:
            headers = signed(form, secrets=signing)
            expected = form if set(known) & set(signing) else "mismatch"
            assert outcome(headers, verifier=verifier) == expected


def test_every_secret_is_compared_with_every_value(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []
    compare = signatures.hmac.compare_digest

    def count(expected: bytes, value: bytes) -> bool:
        compared.append((expected, value))
        return compare(expected, value)

    monkeypatch.setattr(signatures.hmac, "compare_digest", count)
    verifier = Verifier([SECRET, "b", "c"])
    assert outcome(own(b",".join([HEX, b"1" * 64])), verifier=verifier) == "hex"
    assert len(set(compared)) == 6


def test_a_signature_with_a_time_is_not_accepted_again_without_it() -> None:
    """The time in front of the body is the message that was signed; so it is no body."""
    later, key = NOW + timedelta(days=365), OTHER_SECRET.encode()
    plain, message = Verifier([OTHER_SECRET]), STAMP + b"." + BODY
    for value in (mac(key, message).hex().encode(), base64.b64encode(mac(key, message))):
        assert outcome(own(value), message, verifier=plain, now=later) == "mismatch"


def test_no_part_of_a_body_becomes_a_time() -> None:
    """The other direction: a body that begins with a time, signed without one."""
    key, message = OTHER_SECRET.encode(), STAMP + b"." + BODY
    near = datetime.fromtimestamp(7, UTC)
    numbered = own(b"t=7,v1=" + mac(key, b"7." + message).hex().encode())
    assert outcome(numbered, message, verifier=Verifier([OTHER_SECRET]), now=near) == "mismatch"


def test_a_verifier_that_would_accept_nothing_or_anything_is_not_made() -> None:
    wrong: list[tuple[list[str], str]] = [
        *(([], "expected 1 to 8, got 0"), (["x"] * 9, "expected 1 to 8, got 9")),
        *(([e], "one is empty") for e in ("", "\0\0", " \n")),
        *(([SECRET, ""], "one is empty"), (["hush\ud800"], "surrogate")),
    ]
    for secrets, message in wrong:
        with pytest.raises(ValueError, match=message) as caught:
            Verifier(secrets)
        assert "hush" not in repr(caught.value) + repr(caught.value.__cause__)
    with pytest.raises(SignatureRejected) as rejected:
        ALL.verify(own(b"0" * 64), BODY, now=NOW)
    assert SECRET not in repr(ALL) + repr(rejected.value)


NAMES = st.sampled_from([b"svc-signature", b"SVC-Signature"])
VALUES = st.binary(max_size=80) | st.sampled_from([HEX, BASE64, STAMP, b"v1=", b"t="])


@given(
    headers=st.lists(
        st.tuples(NAMES | st.binary(), st.lists(VALUES, max_size=4).map(b"".join)), max_size=5
    ),
    body=st.binary(),
)
def test_arbitrary_bytes_are_rejected(headers: Headers, body: bytes) -> None:
    with pytest.raises(SignatureRejected):
        ALL.verify(headers, body, now=NOW)


# Signing, by the form of an endpoint


@pytest.mark.parametrize("form", SIGNATURE_FORMS)
@given(
    body=st.binary(max_size=200).map(lambda body: b"{" + body),
    secrets=st.lists(
        st.text(st.characters(exclude_categories=["Cs"]), max_size=40).map("s".__add__),
        min_size=1,
        max_size=3,
    ),
    at=st.floats(0, 4e9).map(lambda epoch_s: datetime.fromtimestamp(epoch_s, tz=UTC)),
)
def test_each_secret_that_signed_verifies_alone(
    form: SignatureForm, body: bytes, secrets: list[str], at: datetime
) -> None:
    header = sign(body, secrets=secrets, at=at, form=form)
    if form == "hex":
        assert header == ",".join(mac(secret.encode(), body).hex() for secret in secrets)
        assert header == sign(body, secrets=secrets, at=at), "this form is the default"
    else:
        assert header.startswith(f"t={int(at.timestamp())},v1=")
    for secret in secrets:
        Verifier([secret]).verify(own(header.encode()), body, now=at)
    with pytest.raises(ValueError, match="at least one secret"):
        sign(body, secrets=[], at=at, form=form)
