"""Text from outside, made safe for a terminal, a log and a page.

Belongs here: escaping characters. Does not: showing the text, cells of a spreadsheet
(answer_forms).
"""

import re
from typing import Final

_UNSEEN: Final = re.compile("[\u00ad\u180e\u200b-\u200d\u2060-\u2064\ufeff]")
"""Characters without a width: two different texts would look the same."""
_ACTING: Final = re.compile(
    "["
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # controls, with those that open a terminal's sequences
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u206f"  # change the direction of what follows
    "\u2028\u2029\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f"
    "]"
)
_ASCII: Final = re.compile(r"[ -~\t\n]*")


def plain(text: str) -> str:
    """Return a text without characters that act on a terminal; line ends and tabs stay.

    Control characters, direction marks, line separators and lone surrogates become visible escapes;
    characters without a width are removed.
    """
    if _ASCII.fullmatch(text):
        return text
    return _ACTING.sub(_escaped, _UNSEEN.sub("", text))


def plain_line(text: str) -> str:
    """Return a text as `plain` does, on one line: each run of white space becomes one blank."""
    return plain(" ".join(text.split()))


def escaped(text: str) -> str:
    """Return a text as `plain` does, but with an escape for each character that `plain` removes."""
    return text if _ASCII.fullmatch(text) else _ACTING.sub(_escaped, _UNSEEN.sub(_escaped, text))


def escaped_in_json(text: str) -> str:
    """Return JSON of the same value that is safe to print on a terminal."""
    return _ACTING.sub(_json_escaped, _UNSEEN.sub(_json_escaped, text))


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _json_escaped(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
