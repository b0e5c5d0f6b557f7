"""Text from outside in the markup of a page, a chat or a program, where it stays text.

Belongs here: escaping for Markdown, Slack and JSON, addresses that may be links. Does not: what a
digest or a report says.
"""

import json
import re
from typing import Any, Final
from urllib.parse import quote, urlsplit

from almanac.forms.plain_text import escaped_in_json, plain_line

_MARKDOWN: Final = re.compile(r"([\\`*_\[\]<>#|~&!@$]|(?<=www)\.|:(?=//))", re.IGNORECASE)
"""What acts inside a line; GitHub also links `www.` and `://`, and calls the person after an @."""
_URL: Final = "!$&'*+,-./:;=?@_~%#"
_URL_MAX: Final = 1_000
_SLACK: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
"""The three characters that Slack's documentation has escaped; nothing else can be."""


def markdown(text: str) -> str:
    """Return a text as it is shown by Markdown inside a line, also by GitHub's."""
    return _MARKDOWN.sub(r"\\\1", plain_line(text))


def mrkdwn(text: str) -> str:
    """Return a text for Slack's mrkdwn: it makes no link, no mention and no channel."""
    return "".join(_SLACK.get(character, character) for character in plain_line(text))


def web_address(address: str | None) -> str | None:
    """Return an address that a page or chat may link, with all else percent-encoded, or None.

    Only http and https with a host are links: another scheme could run code.
    """
    if not address or len(address) > _URL_MAX:
        return None
    try:
        parts = urlsplit(address)
        is_web = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        return None
    found = quote(address, safe=_URL)
    return found if is_web and len(found) <= _URL_MAX else None


def json_text(value: Any) -> str:
    """Return a value as JSON that is safe to print; instants are ISO 8601, in UTC with a Z."""
    text = json.dumps(value, ensure_ascii=False, default=_json_value, allow_nan=False)
    return escaped_in_json(text)


def _json_value(value: Any) -> str:
    text = value.isoformat() if hasattr(value, "isoformat") else str(value)
    return text.removesuffix("+00:00") + "Z" if text.endswith("+00:00") else text
