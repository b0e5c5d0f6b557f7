"""Signing, by the form of an endpoint. What a receiver verifies is in test_verification.py."""

import hashlib
import hmac
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.contract.constants import SIGNATURE_FORMS, SignatureForm
from catalog.contract.signatures import Verifier, sign
from tests.contract.signed_deliveries import NOW

BODIES = st.binary(max_size=200).map(lambda body: b"{" + body)
SECRETS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40).map(
    "s".__add__
)
INSTANTS = st.floats(0, 4e9).map(lambda epoch_s: datetime.fromtimestamp(epoch_s, tz=UTC))


@pytest.mark.parametrize("form", SIGNATURE_FORMS)
@given(body=BODIES, secrets=st.lists(SECRETS, min_size=1, max_size=3), at=INSTANTS)
def test_each_secret_that_signed_verifies_alone(
    form: SignatureForm, body: bytes, secrets: list[str], at: datetime
) -> None:
    header = sign(body, secrets=secrets, at=at, form=form)
    assert header.startswith(f"t={int(at.timestamp())},v1=") == (form == "t,v1")
    for secret in secrets:
        verifier = Verifier([secret], forms=[form])
        verifier.verify([(b"svc-signature", header.encode())], body, now=at)


@pytest.mark.parametrize("form", SIGNATURE_FORMS)
def test_signing_without_a_secret_is_an_error(form: SignatureForm) -> None:
    with pytest.raises(ValueError, match="at least one secret"):
        sign(b"{}", secrets=[], at=NOW, form=form)


@given(body=BODIES, secrets=st.lists(SECRETS, min_size=1, max_size=3), at=INSTANTS)
def test_the_plain_form_is_the_hex_of_the_raw_body_with_each_secret_whatever_the_time(
    body: bytes, secrets: list[str], at: datetime
) -> None:
    digests = [hmac.new(secret.encode(), body, hashlib.sha256).hexdigest() for secret in secrets]
    assert sign(body, secrets=secrets, at=at) == ",".join(digests)
    assert sign(body, secrets=secrets, at=at, form="hex") == ",".join(digests)
