"""A receiver accepts the right body, secret and time, and nothing else."""

import hashlib
import hmac
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from catalog.contract.decisions import (
    SIGNATURE_FORMS,
    SIGNATURE_TOLERANCE_S,
    SignatureForm,
)
from catalog.contract.signature import SignatureRejected, sign, verify

NOW = datetime(2026, 10, 8, 12, 0, tzinfo=UTC)
BODY = '{"id":"dlv_1","data":"é"}'.encode()

BODIES = st.binary(max_size=200)
SECRETS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)
INSTANTS = st.floats(0, 4e9).map(lambda epoch_s: datetime.fromtimestamp(epoch_s, tz=UTC))


stamped = partial(sign, form="t,v1")


def is_accepted(
    header: str, body: bytes = BODY, *, secrets: tuple[str, ...] = ("s",), now: datetime = NOW
) -> bool:
    try:
        verify(header, body, secrets=secrets, now=now)
    except SignatureRejected:
        return False
    return True


@given(body=BODIES, secrets=st.lists(SECRETS, min_size=1, max_size=3), at=INSTANTS)
def test_each_secret_that_signed_verifies_alone(
    body: bytes, secrets: list[str], at: datetime
) -> None:
    header = stamped(body, secrets=secrets, at=at)
    assert header.startswith(f"t={int(at.timestamp())},v1=")
    for secret in secrets:
        verify(header, body, secrets=[secret], now=at)


@given(body=BODIES, at=INSTANTS, signing=SECRETS, other=SECRETS)
def test_another_secret_never_verifies(body: bytes, at: datetime, signing: str, other: str) -> None:
    header = stamped(body, secrets=[signing], at=at)
    # HMAC pads a short key with zero bytes, so keys that differ only in them are the same key.
    same = signing.rstrip("\0") == other.rstrip("\0")
    assert is_accepted(header, body, secrets=(other,), now=at) == same


@given(body=st.binary(min_size=1, max_size=200), data=st.data())
def test_any_flipped_bit_of_the_body_is_rejected(body: bytes, data: st.DataObject) -> None:
    position = data.draw(st.integers(0, len(body) - 1))
    bit = data.draw(st.integers(0, 7))
    flipped = bytearray(body)
    flipped[position] ^= 1 << bit
    assert not is_accepted(stamped(body, secrets=["s"], at=NOW), bytes(flipped))


@given(more=st.binary(min_size=1, max_size=20))
def test_a_longer_or_shorter_body_is_rejected(more: bytes) -> None:
    header = stamped(BODY, secrets=["s"], at=NOW)
    assert not is_accepted(header, BODY + more)
    assert not is_accepted(header, more + BODY)
    assert not is_accepted(header, BODY[: -len(more)])


def test_any_changed_character_of_the_header_is_rejected() -> None:
    header = stamped(BODY, secrets=["s"], at=NOW)
    for position, character in enumerate(header):
        changed = header[:position] + ("0" if character != "0" else "1") + header[position + 1 :]
        assert not is_accepted(changed), changed


@given(off_s=st.integers(-3 * SIGNATURE_TOLERANCE_S, 3 * SIGNATURE_TOLERANCE_S))
@example(off_s=SIGNATURE_TOLERANCE_S)
@example(off_s=-SIGNATURE_TOLERANCE_S)
@example(off_s=SIGNATURE_TOLERANCE_S + 1)
def test_the_time_counts_both_ways_up_to_the_tolerance(off_s: int) -> None:
    header = stamped(BODY, secrets=["s"], at=NOW - timedelta(seconds=off_s))
    assert is_accepted(header) == (abs(off_s) <= SIGNATURE_TOLERANCE_S)


def test_a_time_moved_into_the_tolerance_is_rejected() -> None:
    old = stamped(BODY, secrets=["s"], at=NOW - timedelta(days=1))
    fresh = stamped(BODY, secrets=["other"], at=NOW).partition(",")[0]
    assert not is_accepted(f"{fresh},{old.partition(',')[2]}")


@pytest.mark.parametrize(
    ("signed_with", "known", "accepted"),
    [
        (("old", "new"), ("old",), True),
        (("old", "new"), ("new",), True),
        (("old",), ("new", "old"), True),
        (("old", "new"), ("third", "fourth"), False),
        (("old",), (), False),
    ],
)
def test_one_secret_in_common_is_enough_while_a_secret_rotates(
    signed_with: tuple[str, ...], known: tuple[str, ...], accepted: bool
) -> None:
    assert is_accepted(stamped(BODY, secrets=signed_with, at=NOW), secrets=known) == accepted


@pytest.mark.parametrize(
    "header",
    [
        "",
        "t=",
        "v1=",
        "t=1",
        "t=1,t=1,v1=a",
        "t=-1,v1=a",
        "t=1.5,v1=a",
        "t=١,v1=a",
        "t=9999999999999,v1=a",
        "t=1,v2=a",
        "v1=é",
    ],
)
def test_a_header_of_another_form_is_rejected(header: str) -> None:
    assert not is_accepted(header, now=datetime.fromtimestamp(1, tz=UTC))


@given(header=st.text(), known=st.lists(SECRETS, max_size=2))
def test_arbitrary_text_is_rejected_and_never_breaks_the_receiver(
    header: str, known: list[str]
) -> None:
    now = datetime.fromtimestamp(0, tz=UTC)
    assert not is_accepted(header, secrets=tuple(known), now=now)
    assert not is_accepted(f"t=0,v1={header}", secrets=tuple(known), now=now)


def test_unknown_parts_and_spaces_are_ignored() -> None:
    stamp, _, digest = stamped(BODY, secrets=["s"], at=NOW).partition(",")
    assert is_accepted(f"{digest} , v0=x, {stamp}, flag")


@pytest.mark.parametrize("form", SIGNATURE_FORMS)
def test_signing_without_a_secret_is_an_error(form: SignatureForm) -> None:
    with pytest.raises(ValueError, match="at least one secret"):
        sign(BODY, secrets=[], at=NOW, form=form)


@given(body=BODIES, secrets=st.lists(SECRETS, min_size=1, max_size=3), at=INSTANTS)
def test_the_plain_form_is_the_hex_of_the_raw_body_with_each_secret_whatever_the_time(
    body: bytes, secrets: list[str], at: datetime
) -> None:
    digests = [hmac.new(secret.encode(), body, hashlib.sha256).hexdigest() for secret in secrets]
    assert sign(body, secrets=secrets, at=at) == ",".join(digests)
    assert sign(body, secrets=secrets, at=at, form="hex") == ",".join(digests)
