"""Find phrases in the project's prose that a reader has to decode, and print advice.

Reads Markdown, and the docstrings and messages of product code. Text in backticks is not checked.
Exits with 1 if it finds a phrase.

    python .ci/prose.py [FILE ...]
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

PRODUCT = (
    *(
        "almanac/",
        "application/",
        "assets/",
        "catalog/",
        "deploy/",
        "pipeline/",
        "resources/",
        "warehouse/",
    ),
)
"""The folders whose docstrings and messages are checked, besides all Markdown."""
WORDS_MAX = 40
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
        (r"^(?-i:What|Who|Whose) [^?]*[.:;]$", "the noun"),
    )
]
FENCE = re.compile(r"^ *```.*?^ *```|<!--.*?-->|^ {4,}\S.*?$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"``[^`]+``|`[^`]*`|https?://\S+|\]\([^)]*\)", re.DOTALL)
WORD = re.compile(r"[^\W\d_]{2,}")
MARK = re.compile(r"^(?:[-*#>|├└│]+ ?|\d+\. )+")
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


def find_files() -> Iterator[Path]:
    """Yield the files of the project that have prose."""
    listed = subprocess.run(["git", "ls-files"], check=True, capture_output=True, text=True)
    for name in listed.stdout.splitlines():
        if name.endswith(".md") or (name.endswith(".py") and name.startswith(PRODUCT)):
            yield Path(name)


def main(names: list[str]) -> int:
    """Print each fault as `file:line`, and return the exit code."""
    found = 0
    for path in map(Path, names) if names else find_files():
        for first, text in read_texts(path):
            for line, phrase, advice in find_faults(text):
                print(f'{path}:{first + line}: "{phrase}"; write {advice}')
                found += 1
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
