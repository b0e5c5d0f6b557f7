"""The address and the key of a service, checked before anything is sent."""

import re
from typing import Final

from pydantic import SecretStr

from catalog.contract import constants

_USUAL: Final = re.compile(r"https?://[a-z][a-z0-9.-]*(:[1-9][0-9]{3})?(/[A-Za-z0-9_-]+)*/?")
"""Addresses in normal form: parsing does not change their text."""


def check_base_url(text: str) -> str:
    """Return the base address without `/v2` and without a slash at its end.

    Raises:
        ValueError: it is not an http(s) address, or has a user, query or fragment.
    """
    stripped = text.strip()
    usual = stripped if _USUAL.fullmatch(stripped) else _normalised(stripped)
    return usual.rstrip("/").removesuffix(constants.VERSION_PATH).rstrip("/")


def _normalised(text: str) -> str:
    import httpx

    try:
        url: httpx.URL | None = httpx.URL(text)
    except httpx.InvalidURL:
        url = None  # Its message may have a part of a password.
    if url is None or url.scheme not in ("http", "https") or not url.host:
        raise ValueError("the base address must be of the form https://host[:port][/path]")
    if "@" in text or url.query or url.fragment:
        raise ValueError("the base address must have no user, query or fragment")
    return str(url)


def check_key(key: SecretStr | str) -> SecretStr:
    """Return the key, wrapped and without spaces around it.

    Raises:
        ValueError: it is empty or not allowed in a header; the message does not show it.
    """
    text = (key.get_secret_value() if isinstance(key, SecretStr) else key).strip()
    if not text or not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError(
            "the API key is empty, or has spaces or characters that are not allowed in a "
            "header; copy it again from the developer dashboard"
        )
    return SecretStr(text)
