"""Every fenced block of README.md and docs/*.md runs, and gives the output that the page shows.

The blocks of a page run in their order, in one folder like a checkout with a home in `data`. `sh`:
plain `almanac` commands and `export` run in this process, others in bash. `sql`: one statement for
`db.sql`. `python`: one namespace a page; the output is what is printed, then the last expression.

A block of `text` or no language right after it is its output. `…` in it is any text, a line of `…`
any number of lines. A table has at most eight rows, then `… N rows`. To write the outputs into a
page: `DOCS_WRITE=1 pytest tests/test_docs_commands.py -k NAME`.

Marks are comments in the lines before a block:

- `<!-- home: today -->`, once a page: `data` has the last three days of some coins. Without it,
  `data` has 1 to 14 March 2021 (the last pull is on 14 March at 06:00), the same rows each time.
- `<!-- not run: REASON -->`: the block needs root, an account, a container or another machine. The
  options of its `almanac` commands are checked.
- `<!-- needs: MODULE -->`: it runs where the Python module is installed.
- `<!-- background -->` or `<!-- background: --more OPTIONS -->`: it serves until the page's end.
  The next block runs when its port answers. Ports of the page are replaced by free ports.
- `<!-- setup: COMMAND -->`: a command that runs before the block and is not shown.
- `<!-- exits: N -->`: the exit code; its output then has the error.
- `<!-- shape -->`, before an output: only its header and, unless cut, its lines are counted.
"""

import ast
import contextlib
import fcntl
import io
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from typer.testing import CliRunner

import almanac
from almanac import console
from almanac.command_line import app
from pipeline.service_session import open_service
from pipeline.settings import Settings
from resources.session import pull
from tests.deploy.page import almanac_commands, parse
from tests.docs_page import Block, blocks_of, has_shape, home_of, matches, replaced, table_of
from tests.free_ports import free_port
from tests.hangs import HANGS_AFTER_S, wait_for
from tests.history.stories.disk import without_syncs
from tests.in_process import own_process
from tests.test_cli import ALMANAC, ROOT, environment
from warehouse.history.merge import merge
from warehouse.home import Home

PAGES: Final = [*filter(blocks_of, (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))))]
NOT_RUN_MAX: Final = dict(
    README=2, index=1, python=1, operate=13, composing=1, dagster=1, serve=5, scale=10
)
MAJOR: Final = ("bitcoin", "ethereum", "tether", "ripple", "binancecoin", "dogecoin", "solana")
PORTS: Final = {port: str(free_port()) for port in ("8650", "8651", "8652", "8030")}
SHOWN: Final = {free: port for port, free in PORTS.items()}
SERVERS: Final = {"sandbox": "8650", "serve": "8651", "receive": "8030"}
BASH: Final = ("bash", "-euo", "pipefail", "-c")
_PLAIN: Final = re.compile(r"(?:\.venv/bin/)?almanac (.+)|export (\w+)=(.*)")
_SHELL: Final = re.compile(r"[|<>&;$`]|^\w+=")
_STATE: Final = re.compile(r"<<|^\w+=(\S*$|\$\()|^(cd|for|if|until) |[{&]$", re.MULTILINE)
"""A block whose lines depend on each other in the shell."""
Homes = Callable[[str], Path]
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


@pytest.fixture(scope="session")
def home_named(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Homes:
    """Make a home of pages once for all workers."""
    base = tmp_path_factory.getbasetemp()
    folder = base if worker_id == "master" else base.parent

    def make(name: str) -> Path:
        home = folder / f"home of {name}"
        with home.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (home / "warehouse.duckdb").exists():
                make_home(home, name)
        return home

    return make


def make_home(folder: Path, name: str) -> None:
    """Pull days of the sandbox. Its clock is set to each pull, so the rows of March never change.

    The coins of today's home have a fifth of the events: some of these always move.
    """
    if name == "march":
        days, coins = [datetime(2021, 3, day, 6, tzinfo=UTC) for day in range(1, 15)], ()
        pulled = {"cancellations": 1, "coins": 14, "categories": 14}
    else:
        now, coins = datetime.now(UTC).replace(microsecond=0), MAJOR
        days = [now - timedelta(days=number) for number in (2, 1, 0)]
        pulled = {"events": 1, "cancellations": 1, "coins": 1, "categories": 1}
    settings = Settings(home=folder, state=folder / "machine", sandbox_seed=1, coins=coins)
    with without_syncs(), open_service(settings, now=days[0]) as service:
        for number, at in enumerate(days):
            assert service.sandbox is not None
            service.sandbox.set_clock(at)
            service.puller().export((at - timedelta(days=1)).date(), None)
            for feed, every in pulled.items():
                if number % every == 0:
                    pull(feed, service)
        merge(Home(folder))


class Reader:
    """Runs the blocks of a page in the current folder and environment."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch
        self._names: dict[str, Any] = {"__name__": "__page__"}
        self._servers: list[subprocess.Popen[bytes]] = []

    def close(self) -> None:
        for server in self._servers:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGKILL)
            server.wait()

    def run(self, block: Block) -> str:
        """Run a block, and return its output."""
        if "setup" in block.marks:
            self._bash(replaced(block.marks["setup"], PORTS), 0)
        block = replace(block, text=replaced(block.text, PORTS))
        if block.language == "python":
            return self.run_python(block.text)
        if block.language == "sql":
            with almanac.open("data") as database:
                return table_of(database.sql(block.text.strip().removesuffix(";")))
        if "background" in block.marks:
            return self._serve(block)
        code = int(block.marks.get("exits", "0"))
        if code or _STATE.search(block.text):
            return self._bash(block.text, code)
        # A command prints a table on a terminal, but TSV here.
        is_table = block.output is not None and "\t" not in block.output
        return "".join(self._line(line, is_table=is_table) for line in block.commands)

    def _line(self, line: str, *, is_table: bool) -> str:
        found = _PLAIN.fullmatch(line)
        # What only a shell understands, outside quotes, is left to it.
        if found is None or _SHELL.search(re.sub(r"'[^']*'|\"[^\"$`]*\"| #.*", "", line)):
            return self._bash(line, 0)
        if found[2]:
            (value,) = shlex.split(found[3].replace("~", "$HOME"), comments=True)
            self._patch.setenv(found[2], os.path.expandvars(value))
            return ""
        words = shlex.split(found[1], comments=True)
        if is_table and words[0] == "sql" and not {"--format", "-F", "--output"} & {*words}:
            words += ["--format", "table"]
        with own_process():
            done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, f"{line}\n{done.output}"
        return done.stdout

    def _bash(self, text: str, code: int) -> str:
        done = subprocess.run([*BASH, text], capture_output=True, text=True, timeout=HANGS_AFTER_S)
        assert done.returncode == code, f"{text}\n{done.stdout}{done.stderr}"
        return done.stdout + (done.stderr if code else "")

    def _serve(self, block: Block) -> str:
        """Start a server, and return what it printed once its port answers."""
        text = block.text
        for command, port in SERVERS.items():
            given = f" --port {PORTS[port]}" if "--port" not in text else ""
            options = f"{given} {block.marks['background']}"
            text = re.sub(rf"(almanac {command}\b)", rf"\1{options}", text)
        path = Path(f"server-{len(self._servers)}.log")
        with path.open("wb") as log:
            server = subprocess.Popen([*BASH, text], stdout=log, stderr=log, start_new_session=True)
        self._servers.append(server)
        lines = (block.output or "").count("\n")
        for port in re.findall(r"--port (\d+)", text):
            wait_for(lambda port=port: server.poll() is not None or answers(port))
        wait_for(lambda: server.poll() is not None or path.read_text().count("\n") >= lines)
        assert server.poll() is None, path.read_text()
        return path.read_text()

    def run_python(self, code: str) -> str:
        parsed, printed = ast.parse(code), io.StringIO()
        last = parsed.body.pop() if isinstance(parsed.body[-1], ast.Expr) else None
        with contextlib.redirect_stdout(printed):
            exec(compile(parsed, "<page>", "exec"), self._names)  # The page is code to run.
            value = None
            if isinstance(last, ast.Expr):
                value = eval(compile(ast.Expression(last.value), "<page>", "eval"), self._names)
            return printed.getvalue() + table_of(value)


def answers(port: str) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", int(port))) == 0


@contextlib.contextmanager
def reader_in(folder: Path, home: Path) -> Iterator[Reader]:
    """Read pages in a folder like a checkout, in an environment without settings."""
    tools = folder / ".venv" / "bin"
    tools.mkdir(parents=True)
    for name, program in (("python", [sys.executable]), ("almanac", ALMANAC)):
        (tools / name).write_text(f'#!/bin/sh\nexec {shlex.join(program)} "$@"\n')
        (tools / name).chmod(0o755)
    (folder / "deploy").symlink_to(ROOT / "deploy")
    shutil.copytree(home, folder / "data", ignore=shutil.ignore_patterns("checkpoints"))
    shutil.copytree(home / "checkpoints", folder / "data" / "checkpoints", copy_function=os.link)
    given = environment(folder / "data") | {"COLUMNS": "100"}
    given["PATH"] = f"{tools}:{given['PATH']}"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name in [name for name in os.environ if name.startswith("ALMANAC_")]:
            patch.delenv(name)
        for name in given.keys() - {"ALMANAC_HOME"}:
            patch.setenv(name, given[name])
        for stream in (console.people, console.warnings):
            # A console made while COLUMNS was set keeps that width, as in the workers of xdist.
            patch.setattr(stream, "_width", None)
        with contextlib.closing(Reader(patch)) as reader:
            yield reader


@each_page
def test_every_block_of_a_page_runs_and_gives_the_output_that_is_shown(
    page: Path, tmp_path: Path, home_named: Homes
) -> None:
    with reader_in(tmp_path / "almanac", home_named(home_of(page))) as reader:
        assert problems_of(page, reader) == []


def test_every_cell_of_the_notebook_runs_and_none_has_an_output(
    tmp_path: Path, home_named: Homes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MPLBACKEND", "agg")
    notebook = json.loads((ROOT / "examples" / "first_hour.ipynb").read_text("utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert cells and not any(cell["outputs"] for cell in cells)
    with reader_in(tmp_path / "almanac", home_named("march")) as reader:
        for cell in cells:
            reader.run_python("".join(cell["source"]) + "\nNone")


def problems_of(page: Path, reader: Reader) -> list[str]:
    """Run a page; return what differs. With `DOCS_WRITE` write the outputs into the page."""
    problems, outputs = [], []
    for block in filter(Block.runs, blocks_of(page)):
        try:
            found = replaced(reader.run(block), SHOWN)
        except Exception as error:
            raise AssertionError(f"{page.name}, line {block.line}: {error}") from error
        if problem := block.problem(found):
            problems.append(f"{page.name}, line {block.line}:\n{problem}")
            outputs.append((block.output_at, found))
    if os.environ.get("DOCS_WRITE"):
        text = page.read_text("utf-8")
        for (start, end), found in reversed(outputs):
            text = f"{text[:start]}{found.rstrip()}\n{text[end:]}"
        page.write_text(text, "utf-8")
        return []
    return problems


@each_page
def test_few_blocks_do_not_run_and_each_has_a_reason_and_options_that_exist(page: Path) -> None:
    left_out = [block for block in blocks_of(page) if "not run" in block.marks]
    for block in left_out:
        assert block.marks["not run"], f"line {block.line}"
        sys.stdout.write(f"line {block.line}: {block.marks['not run']}\n")
        for line in block.commands if block.language == "sh" else ():
            for words in almanac_commands(line):
                parse(words)
    sys.stdout.write(f"{len(left_out)} blocks of {page.name} do not run\n")
    assert len(left_out) <= NOT_RUN_MAX.get(page.stem, 0)


def test_an_output_that_the_page_does_not_show_is_noticed(
    tmp_path: Path, home_named: Homes
) -> None:
    page = tmp_path / "page.md"
    shown = """
<!-- exits: 1 -->
```sh
export NAME=x; echo $NAME; exit 1
```

```
x
```

```python
{"number": 1 + 1}
```

```text
number
     2
```
"""
    with reader_in(tmp_path / "almanac", home_named("march")) as reader:
        page.write_text(shown)
        assert problems_of(page, reader) == []
        page.write_text(shown.replace("     2", "     3").replace("x\n```", "y\n```"))
        assert len(problems_of(page, reader)) == 2
        page.write_text(shown.replace("1 + 1", "1 / 0"))
        with pytest.raises(AssertionError, match="line 11: division by zero"):
            problems_of(page, reader)


def test_a_cut_output_matches_and_a_shape_has_columns_and_lines() -> None:
    assert matches("a\n…\nd\n", "a\nb\nc\nd") and matches("a…c\n", "a b c")
    assert not matches("a\n…\nd\n", "a\nb\nc") and not matches("a.c", "abc")
    assert has_shape("id  n\nx  1\n", "id  n\ny  2") and not has_shape("id\nx\n", "id\n")
    assert not has_shape("id  n\nx  1\n", "id  m\ny  2")
