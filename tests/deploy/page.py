"""Blocks of code of pages, and arguments of `almanac`, parsed."""

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from almanac.command_line import list_commands
from tests.test_cli import ROOT

DEPLOY: Final = ROOT / "deploy"
PAGE: Final = ROOT / "docs" / "operate.md"
_BLOCK: Final = re.compile(r"(?:<!-- ([^\n]+) -->\n)?```(\w+)\n(.*?)```", re.DOTALL)
_SEPARATORS: Final = frozenset({"|", "&&", ";", ">"})


@dataclass(frozen=True, slots=True)
class Block:
    """A block of code: its mark, which says where it runs, its language and text."""

    mark: str
    language: str
    text: str

    @property
    def commands(self) -> list[str]:
        """The commands, one a line."""
        return self.text.splitlines()


@cache
def blocks(page: Path = PAGE) -> tuple[Block, ...]:
    """Return the blocks of a page in their order; the mark is empty if there is none."""
    found = _BLOCK.findall(page.read_text("utf-8"))
    return tuple(Block(mark, language, text) for mark, language, text in found)


def blocks_of(mark: str, page: Path = PAGE) -> list[Block]:
    return [block for block in blocks(page) if block.mark == mark]


def block_with(part: str, page: Path = PAGE) -> Block:
    """Return the only block that has a text."""
    (block,) = [block for block in blocks(page) if part in block.text]
    return block


def almanac_commands(line: str) -> Iterator[list[str]]:
    """Yield the words of each `almanac` of a command, also of one in a container or a pod."""
    words = shlex.split(line, comments=True)
    for number, word in enumerate(words):
        before = words[number - 1] if number else ""
        follows = words[number + 1 : number + 2]
        if (word.rsplit("/", 1)[-1] == "almanac") and follows and follows[0] in list_commands():
            ends = [at for at, other in enumerate(words) if other in _SEPARATORS and at > number]
            yield words[number + 1 : min(ends, default=len(words))]
            assert before not in ("-C",), line


def parse(words: Sequence[str]) -> None:
    """Parse the words of a command as the program does, without running it.

    Raises:
        UsageError: an option, an argument or a command does not exist.
    """
    _parse(list_commands()[words[0]].load(words[0]), words[0], list(words[1:]))


def _parse(command: Any, name: str, words: list[str]) -> None:
    context = command.make_context(name, words)
    with context:
        inner = [*context._protected_args, *context.args] if hasattr(command, "commands") else []
        if inner:
            _parse(command.commands[inner[0]], inner[0], inner[1:])
