"""docs/serve.md: its examples have the answers of the page, and its configurations run."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from almanac.core.errors import AlmanacError
from almanac.mcp.query_process import BYTES_MAX, QueryProcesses
from almanac.mcp.toolbox import LIMITS, Toolbox
from almanac.mcp.tools import LIMIT, LIMIT_MAX, TOOLS
from tests.almanac.mcp.conftest import NOW
from tests.hangs import HANGS_AFTER_S
from tests.test_cli import ALMANAC, ROOT, environment

PAGE = (ROOT / "docs" / "serve.md").read_text("utf-8")
EXAMPLES = re.findall(
    r"```json tool\n(.+?)```\n\n```json (answer|error)\n(.+?)```", PAGE, re.DOTALL
)


def check_shown(answer: dict[str, Any], shown: dict[str, Any]) -> None:
    for name, value in shown.items():
        if name == "rows":
            assert len(answer["rows"]) == len(value)
            for row, part in zip(answer["rows"], value, strict=True):
                assert {**row, **part} == row
        else:
            assert answer[name] == value


def test_each_example_has_the_answer_of_the_page(mcp_file: Path) -> None:
    assert len(EXAMPLES) == PAGE.count("```json tool") == 2
    toolbox = Toolbox(mcp_file, clock=lambda: NOW)
    try:
        for call, kind, shown in EXAMPLES:
            asked = json.loads(call)
            if kind == "error":
                with pytest.raises(AlmanacError, match=shown.strip()):
                    toolbox.call(asked["tool"], asked["arguments"])
            else:
                check_shown(toolbox.call(asked["tool"], asked["arguments"]), json.loads(shown))
    finally:
        toolbox.close()


def test_each_tool_and_limit_is_on_the_page(mcp_file: Path) -> None:
    for tool in TOOLS:
        assert f"| `{tool}` |" in PAGE
    assert f"{LIMIT} by default, {LIMIT_MAX:,} at most" in PAGE
    assert f"{BYTES_MAX // 1_000} kB" in PAGE
    assert f"| {LIMITS.timeout_s:g} s, then" in PAGE
    assert QueryProcesses(mcp_file, LIMITS).running_max == 2


def test_configurations_of_clients_start_the_program(mcp_file: Path) -> None:
    blocks = [json.loads(text) for text in re.findall(r"```json\n(.+?)```", PAGE, re.DOTALL)]
    servers = [block.get("mcpServers", block.get("servers"))["almanac"] for block in blocks]
    commands = [[server["command"], *server["args"]] for server in servers]
    commands += [
        line.split(" -- ")[1].split()
        for line in PAGE.splitlines()
        if line.startswith("claude mcp add almanac")
    ]
    assert len(commands) == 2
    assert len({tuple(command) for command in commands}) == 1
    program, *words = commands[0]
    assert program.endswith("/bin/almanac")
    home = mcp_file.parent
    done = subprocess.run(
        [*ALMANAC, *(str(home) if word == "/path/to/data" else word for word in words)],
        input=b"",
        capture_output=True,
        env=environment(home),
        timeout=HANGS_AFTER_S,
    )
    assert (done.returncode, done.stdout) == (0, b"")
