"""A receiver accepts what the holder of a secret signed, in a form it allows, and nothing else."""

import base64
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.contract import signatures
from catalog.contract.constants import ACCEPTED_FORMS, AcceptedForm
from catalog.contract.signatures import SignatureRejected, VerifiedSignature, Verifier
from tests.contract.signed_deliveries import (
    BODY,
    MESSAGE_ID,
    NOW,
    OTHER_SECRET,
    SECRET,
    Headers,
    mac,
    mean_the_same,
    mutations,
    signed,
)

STAMP = b"%d" % NOW.timestamp()
ALL = Verifier([SECRET], forms=ACCEPTED_FORMS)
HEX = mac(SECRET.encode(), BODY).hex().encode()
BASE64 = base64.b64encode(mac(SECRET.encode(), BODY))
V1 = signed("t,v1")[0][1].partition(b"v1=")[2]
STAMPED: tuple[AcceptedForm, ...] = ("t,v1", "standard")


def outcome(
    headers: Iterable[tuple[bytes, bytes]],
    body: bytes = BODY,
    *,
    verifier: Verifier = ALL,
    now: datetime = NOW,
) -> str:
    """Return the form of an accepted delivery, or the reason why it is rejected."""
    try:
        return verifier.verify(list(headers), body, now=now).form
    except SignatureRejected as error:
        assert str(error) == error.reason
        return error.reason


def own(value: bytes) -> Headers:
    return [(b"svc-signature", value)]


def standard(**changes: bytes | None) -> Headers:
    """Return the headers of Standard Webhooks, some of them changed or left out."""
    values: dict[str, bytes | None] = {
        name.decode().removeprefix("webhook-"): value for name, value in signed("standard")
    }
    return [
        (f"webhook-{name}".encode(), value)
        for name, value in (values | changes).items()
        if value is not None
    ]


@pytest.mark.parametrize("form", ACCEPTED_FORMS)
def test_a_genuine_delivery_is_accepted_and_its_form_is_told_from_its_shape(
    form: AcceptedForm,
) -> None:
    expected = VerifiedSignature(
        form,
        NOW if form in STAMPED else None,
        MESSAGE_ID.decode() if form == "standard" else None,
    )
    for allowed in (ACCEPTED_FORMS, (form,)):
        verifier = Verifier([SECRET], forms=allowed)
        assert verifier.verify(signed(form), BODY, now=NOW) == expected


PUBLISHED: list[tuple[str, str, bytes, bytes]] = [
    # RFC 4231, test cases 1 and 2.
    (
        "hex",
        "\x0b" * 20,
        b"Hi There",
        b"b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7",
    ),
    (
        "hex",
        "Jefe",
        b"what do ya want for nothing?",
        b"5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
    ),
    # The example of a large service's documentation.
    (
        "hex",
        "It's a Secret to Everybody",
        b"Hello, World!",
        b"sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17",
    ),
]


@pytest.mark.parametrize(("form", "secret", "body", "value"), PUBLISHED)
def test_published_examples_of_the_digest_are_accepted(
    form: str, secret: str, body: bytes, value: bytes
) -> None:
    assert outcome(own(value), body, verifier=Verifier([secret], forms=ACCEPTED_FORMS)) == form


@pytest.mark.parametrize("padding", ["", "="])
def test_the_published_example_of_standard_webhooks_is_accepted(padding: str) -> None:
    """From the test suites of its reference libraries; a secret may have lost its padding."""
    example = {
        "id": b"msg_p5jXN8AQM9LWM0D4loKWxJek",
        "timestamp": b"1614265330",
        "signature": b"v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }
    verifier = Verifier(["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw" + padding], forms=["standard"])
    at = datetime.fromtimestamp(1614265330, UTC)
    body = b'{"test": 2432232314}'
    assert outcome(standard(**example), body, verifier=verifier, now=at) == "standard"
    last = {"signature": b"v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OA="}
    assert outcome(standard(**(example | last)), body, verifier=verifier, now=at) == "mismatch"


SAME_MEANING: list[tuple[Headers, str]] = [
    (own(HEX.upper()), "hex"),
    (own(b"sha256=" + HEX), "hex"),
    (own(b" \t" + HEX + b" "), "hex"),
    (own(HEX + b" , sha256=" + b"0" * 64), "hex"),
    (own(BASE64 + b"," + b"A" * 43 + b"="), "base64"),
    ([(b"SVC-Signature", HEX)], "hex"),
    ([(b"WebHook-" + name[8:], value) for name, value in standard()], "standard"),
    (own(b"v1=" + V1.upper() + b" , v0=x, t=" + STAMP + b",flag"), "t,v1"),
    (standard(signature=b"v2,x v1a,x  " + signed("standard")[2][1]), "standard"),
    ([*own(HEX), (b"webhook-id", b"a"), (b"webhook-id", b"b")], "hex"),
]


@pytest.mark.parametrize(("headers", "form"), SAME_MEANING, ids=range(len(SAME_MEANING)))
def test_a_signature_in_other_words_is_accepted(headers: Headers, form: str) -> None:
    assert outcome(headers) == form


WRONG: dict[str, tuple[str, Headers]] = {
    "no header": ("missing", [(b"host", b"almanac")]),
    "empty": ("malformed", own(b"")),
    "a comma": ("malformed", own(b",")),
    "short hex": ("malformed", own(HEX[:-1])),
    "long hex": ("malformed", own(HEX + b"0")),
    "other letters": ("malformed", own(b"g" + HEX[1:])),
    "other hex": ("mismatch", own(b"0" * 64)),
    "hex and nothing": ("malformed", own(HEX + b",")),
    "hex and base64": ("malformed", own(HEX + b"," + BASE64)),
    "prefix alone": ("malformed", own(b"sha256=")),
    "prefix twice": ("malformed", own(b"sha256=sha256=" + HEX)),
    "other prefix": ("malformed", own(b"sha512=" + HEX)),
    "base64 without padding": ("malformed", own(BASE64.rstrip(b"="))),
    "base64 for URLs": ("malformed", own(b"-_" + BASE64[2:])),
    "base64 with other last bits": ("mismatch", own(BASE64[:42] + b"B=")),
    "hex as base64": ("malformed", own(base64.b64encode(HEX))),
    "nine values": ("malformed", own(b",".join([HEX] * 9))),
    "nine v1": ("malformed", own(b"t=" + STAMP + (b",v1=" + V1) * 9)),
    "accent": ("malformed", own(HEX + "é".encode())),
    "digits of another script": ("malformed", own("t=١,v1=".encode() + V1)),
    "wide hex": ("malformed", own(HEX.decode().replace("0", "\uff10").encode() + b"\xff")),
    "no UTF-8": ("malformed", own(b"\xff" + HEX)),
    "NUL": ("malformed", own(HEX + b"\0")),
    "NUL within": ("malformed", own(HEX[:32] + b"\0" + HEX[32:])),
    "new line": ("malformed", own(HEX + b"\n")),
    "very long": ("malformed", own(b"v1=" + V1 + b",t=" + STAMP + b",x" * 1_000)),
    "t alone": ("malformed", own(b"t=" + STAMP)),
    "t without v1": ("malformed", own(b"t=" + STAMP + b",v2=" + V1)),
    "t and plain hex": ("malformed", own(b"t=" + STAMP + b"," + HEX)),
    "v1 without t": ("malformed", own(b"v1=" + V1)),
    "two t": ("malformed", own(b"t=" + STAMP + b",t=" + STAMP + b",v1=" + V1)),
    "empty t": ("malformed", own(b"t=,v1=" + V1)),
    "negative t": ("malformed", own(b"t=-1,v1=" + V1)),
    "signed t": ("malformed", own(b"t=+" + STAMP + b",v1=" + V1)),
    "fraction": ("malformed", own(b"t=" + STAMP + b".0,v1=" + V1)),
    "hex t": ("malformed", own(b"t=0x10,v1=" + V1)),
    "endless t": ("malformed", own(b"t=" + b"9" * 1_000 + b",v1=" + V1)),
    "large t": ("mismatch", own(b"t=" + b"9" * 20 + b",v1=" + V1)),
    "zeros before t": ("mismatch", own(b"t=0" + STAMP + b",v1=" + V1)),
    "another t": ("mismatch", own(b"t=%d,v1=" % (NOW.timestamp() + 1) + V1)),
    "empty v1": ("malformed", own(b"t=" + STAMP + b",v1=")),
    "short v1": ("malformed", own(b"t=" + STAMP + b",v1=" + V1[:8])),
    "prefix in v1": ("malformed", own(b"t=" + STAMP + b",v1=sha256=" + V1)),
    "hex of the body as v1": ("mismatch", own(b"t=" + STAMP + b",v1=" + HEX)),
    "two headers": ("several", own(HEX) * 2),
    "two headers, one wrong": ("several", [*own(b"0" * 64), *own(HEX)]),
    "two headers, one empty": ("several", [*own(HEX), *own(b"")]),
    "two headers of two forms": ("several", [*own(HEX), *signed("standard")]),
    "two headers in other letters": ("several", [*own(HEX), (b"SVC-SIGNATURE", HEX)]),
    "no id": ("malformed", standard(id=None)),
    "empty id": ("malformed", standard(id=b"")),
    "accent in the id": ("malformed", standard(id="é".encode())),
    "space in the id": ("malformed", standard(id=b"a b")),
    "long id": ("malformed", standard(id=b"a" * 257)),
    "another id": ("mismatch", standard(id=b"msg_2")),
    "two ids": ("several", [(b"webhook-id", b"x"), *standard()]),
    "no timestamp": ("malformed", standard(timestamp=None)),
    "two timestamps": ("several", [*standard(), (b"webhook-timestamp", STAMP)]),
    "a date": ("malformed", standard(timestamp=b"2026-10-08T12:00:00Z")),
    "an infinite time": ("malformed", standard(timestamp=b"inf")),
    "a point moved to the id": ("malformed", standard(id=MESSAGE_ID + b"." + STAMP, timestamp=b"")),
    "no standard signature": ("missing", standard(signature=None)),
    "no version": ("malformed", standard(signature=b"x")),
    "another version alone": ("malformed", standard(signature=b"v2," + BASE64)),
    "two commas": ("malformed", standard(signature=b"v1,," + BASE64)),
    "bad base64": ("malformed", standard(signature=b"v1,!!!!")),
    "a text after a genuine value": (
        "malformed",
        standard(signature=signed("standard")[2][1] + b" v1,x"),
    ),
    "nine standard values": ("malformed", standard(signature=(b"v1," + BASE64 + b" ") * 9)),
    "signed with the text": ("mismatch", standard(signature=b"v1," + BASE64)),
    "own header in place": ("malformed", own(signed("standard")[2][1])),
    "hex in place": ("malformed", [*standard(signature=HEX)]),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_signature_is_rejected_with_its_reason(case: str) -> None:
    reason, headers = WRONG[case]
    assert outcome(headers) == reason


@pytest.mark.parametrize("form", ACCEPTED_FORMS)
def test_the_raw_bytes_of_the_body_are_what_is_verified(form: AcceptedForm) -> None:
    others = (b" " + BODY, BODY + b"\n", BODY.replace(b":", b": "), BODY[:-1], b"", BODY * 2)
    for body in (*others, b"\xef\xbb\xbf" + BODY, BODY.replace("é".encode(), b"\\u00e9")):
        assert outcome(signed(form), body) == "mismatch"
    assert outcome(signed(form, b""), b"") == form
    assert outcome(signed(form, b"\xff\0"), b"\xff\0") == form


@pytest.mark.parametrize("form", STAMPED)
@pytest.mark.parametrize("sign", [1, -1], ids=["late", "early"])
def test_a_time_counts_both_ways_up_to_the_tolerance(form: AcceptedForm, sign: int) -> None:
    for off_s, expected in ((0, form), (300, form), (301, "stale"), (10**8, "stale")):
        now = NOW + sign * timedelta(seconds=off_s)
        assert outcome(signed(form), now=now) == expected
    assert outcome(signed(form), now=NOW + timedelta(seconds=300.5)) == "stale"
    strict = Verifier([SECRET], forms=[form], tolerance_s=10)
    assert outcome(signed(form), verifier=strict, now=NOW + timedelta(seconds=10)) == form
    assert outcome(signed(form), verifier=strict, now=NOW + timedelta(seconds=11)) == "stale"


@pytest.mark.parametrize("form", STAMPED)
def test_milliseconds_in_place_of_seconds_are_stale(form: AcceptedForm) -> None:
    assert outcome(signed(form, stamp=STAMP + b"000")) == "stale"
    assert outcome(signed(form, stamp=b"9" * 20)) == "stale"
    assert outcome(signed(form, stamp=b"0")) == "stale"


@pytest.mark.parametrize("form", STAMPED)
def test_an_old_forgery_is_no_stale_delivery(form: AcceptedForm) -> None:
    forged = signed(form, secrets=["guessed"], stamp=b"1")
    assert outcome(forged) == "mismatch"


@pytest.mark.parametrize("form", ACCEPTED_FORMS)
def test_one_secret_in_common_is_enough_while_a_secret_rotates(form: AcceptedForm) -> None:
    names = (SECRET, OTHER_SECRET, "third")
    for known in (*permutations(names, 1), *permutations(names, 2)):
        verifier = Verifier(known, forms=ACCEPTED_FORMS)
        for signing in (*permutations(names, 1), *permutations(names, 2)):
            headers = signed(form, secrets=signing)
            expected = form if set(known) & set(signing) else "mismatch"
            assert outcome(headers, verifier=verifier) == expected


def test_every_secret_is_compared_with_every_value_also_after_a_match(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared: list[tuple[bytes, bytes]] = []
    compare = signatures.hmac.compare_digest

    def count(expected: bytes, value: bytes) -> bool:
        compared.append((expected, value))
        return compare(expected, value)

    monkeypatch.setattr(signatures.hmac, "compare_digest", count)
    verifier = Verifier([SECRET, "b", "c"], forms=["hex"])
    assert outcome(own(b",".join([HEX, b"1" * 64])), verifier=verifier) == "hex"
    assert len(set(compared)) == 6


@pytest.mark.parametrize("form", ACCEPTED_FORMS)
def test_a_form_that_is_not_allowed_is_refused_as_such(form: AcceptedForm) -> None:
    others = [other for other in ACCEPTED_FORMS if other != form]
    for allowed in (others, *([other] for other in others)):
        assert outcome(signed(form), verifier=Verifier([SECRET], forms=allowed)) == "not_allowed"


def test_a_second_header_of_a_form_that_is_not_allowed_does_not_count() -> None:
    both = [*signed("hex"), *signed("standard")]
    for form, wrong in (("hex", signed("standard", b"{}")), ("standard", own(b"x"))):
        only = Verifier([SECRET], forms=[form])  # type: ignore[list-item]
        assert outcome(both, verifier=only) == form
        assert outcome([*wrong, *signed(form)], verifier=only) == form  # type: ignore[arg-type]


def test_the_name_of_the_header_is_a_setting() -> None:
    named = Verifier([SECRET], forms=ACCEPTED_FORMS, header="X-Hub-Signature-256")
    assert outcome([(b"x-hub-signature-256", HEX)], verifier=named) == "hex"
    assert outcome(own(HEX), verifier=named) == "missing"
    shared = Verifier([SECRET], forms=ACCEPTED_FORMS, header="webhook-signature")
    assert outcome([(b"webhook-signature", HEX)], verifier=shared) == "hex"
    assert outcome(signed("standard"), verifier=shared) == "standard"


def test_a_signature_with_a_time_is_not_accepted_again_without_it() -> None:
    """The time in front of the body is the message that was signed; so it is no body."""
    later = NOW + timedelta(days=365)
    plain = Verifier([OTHER_SECRET], forms=ACCEPTED_FORMS)
    stamped = STAMP + b"." + BODY
    value = mac(OTHER_SECRET.encode(), stamped)
    for replayed in (own(value.hex().encode()), own(base64.b64encode(value))):
        assert outcome(replayed, stamped, verifier=plain, now=later) == "mismatch"
    message = MESSAGE_ID + b"." + stamped
    value = mac(OTHER_SECRET.encode(), message)
    for replayed in (own(value.hex().encode()), own(base64.b64encode(value))):
        assert outcome(replayed, message, verifier=plain, now=later) == "mismatch"


def test_no_part_of_a_body_becomes_a_time() -> None:
    """The other direction: a body that begins with a time, signed without one."""
    plain = Verifier([OTHER_SECRET], forms=ACCEPTED_FORMS)
    message = STAMP + b"." + BODY
    digest = mac(OTHER_SECRET.encode(), message).hex().encode()
    as_sent = own(digest)
    assert outcome(as_sent, message, verifier=plain) == "mismatch", "refused as it was sent, too"
    twice = b"7." + message
    value = b"v1," + base64.b64encode(mac(OTHER_SECRET.encode(), b"msg." + twice))
    headers = standard(id=b"msg.7", signature=value)
    assert outcome(headers, BODY, verifier=plain) == "standard", "as it was sent"
    moved = standard(id=b"msg", timestamp=b"7", signature=value)
    near = datetime.fromtimestamp(7, UTC)
    assert outcome(moved, message, verifier=plain, now=near) == "mismatch"
    numbered = own(b"t=7,v1=" + mac(OTHER_SECRET.encode(), twice).hex().encode())
    assert outcome(numbered, message, verifier=plain, now=near) == "mismatch"


@pytest.mark.parametrize(
    ("secrets", "options", "message"),
    [
        ([], {}, "expected 1 to 8, got 0"),
        (["x"] * 9, {}, "expected 1 to 8, got 9"),
        ([""], {}, "one is empty"),
        ([SECRET, ""], {}, "one is empty"),
        (["\0\0"], {}, "one is empty"),
        ([" \n"], {}, "one is empty"),
        (["whsec_"], {}, "one is empty"),
        (["whsec_===="], {}, "one is empty"),
        (["hush\ud800"], {}, "surrogate"),
        (["whsec_hu!sh"], {"forms": ["standard"]}, "valid base64"),
        (["whsec_AAAA"], {"forms": ["standard"]}, "valid base64"),
        (["hush"], {"forms": []}, "forms: expected some of hex"),
        (["hush"], {"forms": ["hex", "md5"]}, "forms: expected some of hex"),
        (["hush"], {"tolerance_s": float("nan")}, "tolerance_s: expected 0 to 86400"),
        (["hush"], {"tolerance_s": float("inf")}, "tolerance_s: expected 0 to 86400"),
        (["hush"], {"tolerance_s": -1}, "tolerance_s: expected 0 to 86400"),
    ],
)
def test_a_verifier_that_would_accept_nothing_or_anything_is_not_made(
    secrets: Sequence[str], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        Verifier(secrets, **({"forms": ACCEPTED_FORMS} | options))
    shown = repr(caught.value) + repr(caught.value.__cause__)
    assert "hush" not in shown


def test_a_secret_that_has_no_key_in_one_form_still_verifies_the_others() -> None:
    verifier = Verifier(["whsec_no base64!"], forms=ACCEPTED_FORMS)
    headers = signed("hex", secrets=["whsec_no base64!"])
    assert outcome(headers, verifier=verifier) == "hex"
    assert outcome(signed("standard"), verifier=verifier) == "mismatch"


def test_a_secret_is_in_no_text_of_a_verifier() -> None:
    assert (
        repr(ALL) == str(ALL) == "Verifier(1 secrets, forms=['base64', 'hex', 'standard', 't,v1'])"
    )
    with pytest.raises(SignatureRejected) as caught:
        ALL.verify(own(b"0" * 64), BODY, now=NOW)
    assert SECRET not in repr(caught.value)


NAMES = st.sampled_from(
    [b"svc-signature", b"webhook-signature", b"webhook-id", b"webhook-timestamp", b"SVC-Signature"]
)
VALUES = st.binary(max_size=80) | st.sampled_from([HEX, BASE64, STAMP, MESSAGE_ID, b"v1=", b"t="])


@given(
    headers=st.lists(
        st.tuples(NAMES | st.binary(), st.lists(VALUES, max_size=4).map(b"".join)), max_size=5
    ),
    body=st.binary(),
)
def test_arbitrary_bytes_are_rejected_and_never_break_the_receiver(
    headers: Headers, body: bytes
) -> None:
    with pytest.raises(SignatureRejected):
        ALL.verify(headers, body, now=NOW)


def accepted_mutations(seed: int, count: int, form: AcceptedForm) -> int:
    """Return how many mutations were accepted; all of them have to mean what was signed."""
    accepted = 0
    for headers, body in mutations(seed, count, form):
        if outcome(headers, body) in ACCEPTED_FORMS:
            accepted += 1
            assert mean_the_same(form, headers, body), (headers, body)
    return accepted


@pytest.mark.parametrize("form", ACCEPTED_FORMS)
def test_of_50_000_mutations_none_is_accepted_that_means_something_else(
    form: AcceptedForm,
) -> None:
    """A quarter of them for each form."""
    assert accepted_mutations(2026, 12_500, form) > 0, "some only write it in another way"
