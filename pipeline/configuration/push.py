"""The settings of push: secrets, forms of signatures, where to listen, when silence is reported."""

import re
from typing import Final

from pydantic import BaseModel, Field, SecretStr

from catalog.contract import constants
from pipeline.configuration.types import Place, SettingsError, SignatureForms

DEFAULT_PORT: Final = 8030
LEAST_SECRET: Final = 16
"""Characters of the shortest secret; a shorter one could be guessed."""


def secrets_in(name: str, given: SecretStr | None) -> tuple[SecretStr, ...]:
    """Return the secrets in the text of the setting `name`, separated by commas or line ends.

    Raises:
        SettingsError: one can't be used; the text does not show it.
    """
    if given is None:
        return ()
    found = [part.strip() for part in re.split(r"[,\n]", given.get_secret_value())]
    secrets = tuple(SecretStr(part) for part in found if part)
    if not secrets:
        raise SettingsError(f"{name} has no secret; expected one or more, separated by commas.")
    if any(len(secret) < LEAST_SECRET for secret in secrets):
        raise SettingsError(
            f"{name} has a secret of fewer than {LEAST_SECRET} characters, which could be guessed; "
            "expected those that the service shows for the endpoint."
        )
    return secrets


class PushSettings(BaseModel):
    """How webhooks are received (`almanac receive`)."""

    webhook_secrets: SecretStr | None = Field(
        default=None,
        description="The signing secrets of the webhook endpoint, separated by commas: more than "
        "one while a secret rotates. A file is safer: `ALMANAC_WEBHOOK_SECRETS_FILE`.",
    )
    webhook_secrets_file: Place | None = Field(
        default=None,
        description="A file that contains the secrets, one a line, and nothing else. It is read "
        "again when it changes.",
    )
    signature_header: str = Field(
        default=constants.SIGNATURE_HEADER,
        pattern=r"^[A-Za-z0-9-]{1,100}$",
        description="The header of a webhook that has the signature.",
    )
    signature_forms: SignatureForms = Field(
        default=constants.ACCEPTED_FORMS,
        description="The forms of signatures that are accepted, separated by commas: "
        f"{', '.join(f'`{form}`' for form in constants.ACCEPTED_FORMS)}. Which one a delivery has "
        "is told from its header. Allow only what your service sends.",
    )
    receive_host: str = Field(
        default="127.0.0.1",
        description="The address on which `almanac receive` listens. It has no TLS of its own.",
    )
    receive_port: int = Field(
        default=DEFAULT_PORT, ge=0, le=65_535, description="Its port; 0 takes a free one."
    )
    receive_path: str = Field(
        default="/webhooks",
        pattern=r"^/[A-Za-z0-9._~/-]{0,200}$",
        description="The path to which webhooks are sent.",
    )
    push_silence_h: float = Field(
        default=24.0,
        gt=0,
        description="Hours without a delivery after which `almanac status` warns, once push was "
        "received, and polls return to the schedule without push.",
    )
    push_merge_interval_s: int = Field(
        default=60,
        ge=0,
        description="The shortest time between two runs of Dagster that merge deliveries, in "
        "seconds.",
    )
    push_poll_interval_s: int = Field(
        default=21_600,
        ge=0,
        description="The shortest time between two polls of the same dates while push brings the "
        "changes, in seconds: push does not report withdrawals.",
    )
