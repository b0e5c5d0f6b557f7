"""A hook of MkDocs: adds the pages outside `docs` that pages link to, and rewrites the links.

A linked file of the repository, such as `CONTRIBUTING.md` or `deploy/Caddyfile`, becomes a page
under `repository/`: Markdown unchanged, other text as a block of code. The site does not need the
address of the repository. A broken link fails the build.
"""

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from mkdocs.structure.files import File, Files

ROOT: Final = Path(__file__).parent.parent
DOCS: Final = "docs"
OUTSIDE: Final = "repository"
STARTS: Final = (
    *("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "bench/README.md"),
    "tests/mutants/README.md",
)
"""Pages outside `docs` that the navigation lists."""
LINK: Final = re.compile(r"(?<=\]\()([^)#\s:]+)(?=[#)])")
NAMED: Final = re.compile(r"(?<=\[)([\w./-]+\.md)(?=\]\(([^)#\s:]+)[#)])")
"""A link whose text is the name of a page."""
FENCED: Final = re.compile(r"(^ *```.*?^ *```|`[^`\n]+`)", re.MULTILINE | re.DOTALL)
OPENING: Final = re.compile(r"(```\w+)(?: \w+)+$", re.MULTILINE)
"""The first line of a code block, with options for the tests that MkDocs can't read."""
LANGUAGES: Final = {".yaml": "yaml", ".py": "python", ".conf": "nginx", ".sql": "sql"}


def on_files(files: Files, config: Any) -> Files:
    """Add the linked pages outside `docs`."""
    known = {f"{DOCS}/{file.src_uri}" for file in files}
    waiting = [*STARTS, *(path for path in known if path.endswith(".md"))]
    seen = set(waiting)
    while waiting:
        source = waiting.pop()
        if source not in known:
            add(files, config, page_of(source), read_page(source))
        if source.endswith(".md"):
            found = {path for path in linked(source) if (ROOT / path).is_file()} - seen
            seen |= found
            waiting += sorted(found - known)
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Return the text of a page; links lead to pages of the site and show their titles."""
    uri: str = page.file.src_uri
    source = uri.removeprefix(f"{OUTSIDE}/") if uri.startswith(f"{OUTSIDE}/") else f"{DOCS}/{uri}"
    folder = posixpath.dirname(source)

    def show_title(found: re.Match[str]) -> str:
        target = ROOT / folder / found[2]
        return read_title(target) if target.is_file() else found[0]

    def rewrite(found: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, found[0]))
        if not (ROOT / target).exists():
            return found[0]
        return posixpath.relpath(page_of(target), posixpath.dirname(uri) or ".")

    parts = FENCED.split(markdown)
    return "".join(
        OPENING.sub(r"\1", part) if number % 2 else LINK.sub(rewrite, NAMED.sub(show_title, part))
        for number, part in enumerate(parts)
    )


def add(files: Files, config: Any, uri: str, text: str) -> None:
    files.append(File.generated(config, uri, content=text))


def page_of(path: str) -> str:
    """Return the source address, in the site, of a path of the repository."""
    if (ROOT / path).is_dir():
        path = f"{path}/index.md"
    if path.startswith(f"{DOCS}/"):
        return path.removeprefix(f"{DOCS}/")
    return f"{OUTSIDE}/{path}" if path.endswith(".md") else f"{OUTSIDE}/{path}.md"


def linked(source: str) -> Iterator[str]:
    """Yield the paths to which a page links."""
    folder = posixpath.dirname(source)
    for target in LINK.findall(FENCED.sub("", (ROOT / source).read_text("utf-8"))):
        yield posixpath.normpath(posixpath.join(folder, target))


def read_page(source: str) -> str:
    """Return a file as Markdown."""
    path = ROOT / source
    text = path.read_text("utf-8")
    if path.suffix == ".md":
        return text
    return f"# {source}\n\n````{LANGUAGES.get(path.suffix, 'text')}\n{text}````\n"


def read_title(page: Path) -> str:
    return page.read_text("utf-8").partition("\n")[0].removeprefix("# ").replace(". ", "\\. ", 1)
