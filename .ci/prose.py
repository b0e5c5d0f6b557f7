"""Find phrases in the project's prose that a reader has to decode, and print advice.

Reads Markdown, and the docstrings and messages of product code. Text in backticks is checked for
names that no code has, in product code only. Exits with 1 if it finds a fault.

    python .ci/prose.py [FILE ...]
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from itertools import chain, pairwise
from pathlib import Path

PRODUCT = (
    *("almanac/", "application/", "assets/", "catalog/"),
    *("deploy/", "pipeline/", "resources/", "warehouse/"),
)
"""The folders whose docstrings and messages are checked, besides all Markdown."""
WORDS_MAX = 40
WIDTH_MIN = 70
PARTS = "body|clock|file|folder|limiter|lock|name|path|size"
WHOLES = "column|command|export|file|home|machine|response|service|setting|table|warehouse"
RULES = [
    (re.compile(pattern, re.IGNORECASE), advice)
    for pattern, advice in (
        (r"\bat once\b", "immediately, or together"),
        (r"\bby (itself|themselves)\b", "automatically"),
        (r"\bby hand\b", "manually"),
        (r"\bfor ?ever\b", "permanently"),
        (
            r"\b(an?|the|th[ai][ts]|each|every|any|same|one|past|first|last) (\w+ )?instant\b",
            "timestamp",
        ),
        (r"\binstants\b", "timestamps"),
        (r"\b(is|are|was|were) (in|on|at|of) no\b", "is not in a"),
        (r"(?<!there )\b(is|are) no (?!longer|more|less|later|\w+er than)\b", "is not a"),
        (r"\bhas no form\b", "is not allowed"),
        (r"\bth(at|ose) of (an?|the|its|their|this|each|every|another)\b", "the noun"),
        (r"\bones? (that|which|who)\b", "the noun"),
        (r"\bwhoever\b", "users who"),
        (r"\bbod(y|ies) of (an |the )?answers?\b", "response body"),
        (r"\bwords of (a|the) command\b", "arguments"),
        (r"\bDagster's pages\b", "the Dagster UI"),
        (r"\bis no harm\b", "it is safe"),
        (rf"\bthe ({PARTS}) of the ({WHOLES})\b", "a compound noun, such as the export limiter"),
        (r"\b(any|each|every|no|other) doors?\b", "each command, page or function, by its name"),
        (r"^(?-i:What|Who|Whose) [^?]*[.:;]$", "the noun"),
    )
]
FENCE = re.compile(r"^ *```.*?^ *```|<!--.*?-->|^ {4,}\S.*?$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"``[^`]+``|`[^`]*`|https?://\S+|\]\([^)]*\)", re.DOTALL)
WORD = re.compile(r"[^\W\d_]{2,}")
MARK = re.compile(r"^(?:[-*#>|├└│]+ ?|\d+\. )+")
NAME = re.compile(r"`([a-z]\w*_\w*)`")
INSIDE = re.compile(r"^(?=.*[a-z]) *[\w`]\S*(?: \S+)*(?<=[\w`])$")
STARTS = re.compile(r"^ *(?:[^\W\d_]|`\w+`)\S*(?: \S+)*$")
END = re.compile(r"(?<=[.!?:])\s|\n\s*\n|\n\s*(?=[-*#>|├└│]|\d+\.|\S+/)|\s\|\s|(?<=\S)  +(?=\S)")


def hide(text: str, pattern: re.Pattern[str], mark: str = "") -> str:
    """Return the text with a mark in place of each match, on the same lines."""
    return pattern.sub(lambda found: mark + "\n" * found[0].count("\n"), text)


def read_texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the texts of a file, each with its first line."""
    source = path.read_text("utf-8")
    if path.suffix == ".md":
        yield 1, hide(source, FENCE)
        return
    parts = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            parts |= {id(part) for part in node.values}
            yield (
                node.lineno,
                "".join(
                    str(part.value) if isinstance(part, ast.Constant) else "X"
                    for part in node.values
                ),
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if id(node) in parts or node.value.count(" ") < 2:
                continue
            yield node.lineno, node.value


def find_faults(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield line (from 0), phrase and advice for each fault of a text."""
    plain = hide(text, CODE, "X") + "\n\n"
    start = 0
    for end in END.finditer(plain):
        sentence = plain[start : end.start()]
        words = MARK.sub("", " ".join(sentence.split()))
        line = plain.count("\n", 0, start + len(sentence) - len(sentence.lstrip()))
        for pattern, advice in RULES:
            if found := pattern.search(words):
                yield line, found[0], advice
        if re.search("[,.:]", words) and len(WORD.findall(words)) > WORDS_MAX:
            yield line, f"{words[:50]} ...", f"sentences of at most {WORDS_MAX} words"
        start = end.end()


def find_broken_lines(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield the lines of a docstring that end inside a sentence, far before the margin."""
    for number, (line, after) in enumerate(pairwise(text.split("\n"))):
        word = after.split()[0] if after.split() else ""
        if INSIDE.search(line) and STARTS.match(after) and len(line) + len(word) < WIDTH_MIN:
            yield number, line.strip(), "full lines"


def find_dead_names(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield the names in backticks that no code has."""
    for found in NAME.finditer(text):
        if found[1].removeprefix("almanac_") not in read_words():
            yield text.count("\n", 0, found.start()), found[1], "a name that exists"


@cache
def read_words() -> frozenset[str]:
    """Return the words of all code outside backticks."""
    found: set[str] = set()
    for name in list_files():
        if name.endswith((".html", ".py", ".sql")):
            found |= set(re.findall(r"\w+", re.sub("`[^`\n]*`", "", Path(name).read_text("utf-8"))))
    return frozenset(found)


@cache
def list_files() -> list[str]:
    """Return the names of the files of the project."""
    listed = subprocess.run(["git", "ls-files"], check=True, capture_output=True, text=True)
    return listed.stdout.splitlines()


def find_files() -> Iterator[Path]:
    """Yield the files of the project that have prose."""
    for name in list_files():
        if name.endswith(".md") or (name.endswith(".py") and name.startswith(PRODUCT)):
            yield Path(name)


def main(names: list[str]) -> int:
    """Print each fault as `file:line`, and return the exit code."""
    found = 0
    for path in map(Path, names) if names else find_files():
        checks = [find_faults]
        if path.suffix == ".py":
            checks += [find_broken_lines, find_dead_names]
        for first, text in read_texts(path):
            for line, phrase, advice in chain.from_iterable(check(text) for check in checks):
                print(f'{path}:{first + line}: "{phrase}"; write {advice}')
                found += 1
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
