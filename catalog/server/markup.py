"""Build HTML in which every text is escaped.

Also reads the little Markdown that the texts of the contract use: paragraphs, `## ` headings,
`- ` lists, and code between backticks.
"""

import re
from collections.abc import Iterable, Sequence
from html import escape

_CODE = re.compile(r"`([^`]+)`")
_VOID = frozenset({"meta", "link"})


class Html(str):
    """Text that is HTML already; any other text is escaped when it becomes a child."""

    __slots__ = ()


def join(*children: str) -> Html:
    return Html("".join(c if isinstance(c, Html) else escape(c) for c in children))


def el(name: str, /, *children: str, **attributes: str) -> Html:
    """Return one element; `class_` is the attribute `class`."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"'
        for key, value in attributes.items()
    )
    if name in _VOID:
        return Html(f"<{name}{written}>")
    return Html(f"<{name}{written}>{join(*children)}</{name}>")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Html:
    """Return a table; its wrapper scrolls when the screen is narrow."""
    heading = el("tr", *(el("th", cell, scope="col") for cell in head))
    body = [el("tr", *(el("td", cell) for cell in row)) for row in rows]
    return el(
        "div", el("table", el("thead", heading), el("tbody", *body)), class_="scroll", tabindex="0"
    )


def inline(text: str) -> Html:
    """Return one run of text with its code marked."""
    pieces = _CODE.split(" ".join(text.split()))
    return join(*(el("code", piece) if i % 2 else piece for i, piece in enumerate(pieces)))


def slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def prose(text: str) -> Html:
    """Return the blocks of a text; a heading gets its own words as its id."""
    return join(*(_block(block) for block in text.strip().split("\n\n")))


def headings(text: str) -> list[str]:
    return re.findall(r"^## (.+)$", text, re.MULTILINE)


def _block(block: str) -> Html:
    if block.startswith("## "):
        title = block.removeprefix("## ")
        return el("h3", inline(title), id=slug(title))
    if block.startswith("- "):
        items = block.removeprefix("- ").split("\n- ")
        return el("ul", *(el("li", inline(item)) for item in items))
    return el("p", inline(block))
