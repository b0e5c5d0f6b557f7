"""`almanac mcp` as a program: clients of the oldest and newest protocol, and its end."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters, stdio_client
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

from almanac import command_line
from almanac.mcp.tools import TOOLS
from tests.almanac.mcp.test_toolbox import EXAMPLES
from tests.hangs import HANGS_AFTER_S
from tests.in_process import own_process
from tests.test_cli import ALMANAC, environment

SECRET = "canary-secret-4711"


def call(home: Path, mode: str, *calls: tuple[str, dict[str, Any]]) -> tuple[str, Any, list[Any]]:
    """Return the protocol, the tools and the answers of a new program."""

    async def run() -> tuple[str, Any, list[Any]]:
        variables = {**environment(home), "ALMANAC_API_KEY": SECRET}
        words = [*ALMANAC[1:], "mcp", "--home", str(home)]
        program = StdioServerParameters(command=ALMANAC[0], args=words, env=variables)
        async with Client(stdio_client(program), mode=mode) as client:
            tools = (await client.list_tools()).tools
            answers = [await client.call_tool(name, given) for name, given in calls]
            return client.protocol_version, tools, answers

    return asyncio.run(run())


def test_a_client_lists_and_calls_each_tool(mcp_file: Path) -> None:
    calls = list(EXAMPLES.items())
    calls.append(("upcoming", {"coins": ["SUN"]}))
    version, tools, answers = call(mcp_file.parent, "auto", *calls)
    assert version == MODERN_PROTOCOL_VERSIONS[-1]
    assert [tool.name for tool in tools] == list(TOOLS)
    for tool in tools:
        hints = tool.annotations
        assert hints.read_only_hint and hints.idempotent_hint
        assert not hints.destructive_hint and not hints.open_world_hint
        assert tool.description and tool.input_schema["type"] == "object"
    *found, refused = answers
    for answer in found:
        assert not answer.is_error, answer
        note, text = (content.text for content in answer.content)
        assert note.startswith("As of 2")
        assert json.loads(text) == answer.structured_content
    assert refused.is_error and "slug:first-sun" in refused.content[0].text
    assert [coin["rank"] for coin in refused.structured_content["candidates"]] == [40, 90]
    assert len(json.dumps([tool.model_dump(mode="json", by_alias=True) for tool in tools])) < 9_000
    shown = repr((tools, answers))
    assert SECRET not in shown and str(mcp_file.parent) not in shown


def test_home_without_a_file_is_the_answer_of_a_call_also_of_an_old_client(tmp_path: Path) -> None:
    version, tools, (answer,) = call(tmp_path, "legacy", ("coverage", {}))
    assert (version, len(tools)) == (HANDSHAKE_PROTOCOL_VERSIONS[-1], len(TOOLS))
    assert answer.is_error
    assert "almanac run" in answer.content[0].text and str(tmp_path) not in repr(answer)


def test_termination_ends_a_statement(mcp_file: Path) -> None:
    client = {"name": "raw", "version": "1"}
    begin = {"protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": client}
    endless = "WITH RECURSIVE t AS (SELECT 1 n UNION ALL SELECT n + 1 FROM t) SELECT sum(n) FROM t"
    messages: list[dict[str, Any]] = [
        {"id": 1, "method": "initialize", "params": begin},
        {"method": "notifications/initialized"},
        {
            "id": 2,
            "method": "tools/call",
            "params": {"name": "query", "arguments": {"sql": endless}},
        },
    ]
    lines = [json.dumps({"jsonrpc": "2.0", **message}) for message in messages]
    with subprocess.Popen(
        [*ALMANAC, "mcp", "--home", str(mcp_file.parent)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(mcp_file.parent),
        text=True,
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write("\n".join(lines) + "\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["id"] == 1
        script = f"until pgrep -P {process.pid}; do sleep 0.05; done"
        children = subprocess.check_output(["bash", "-c", script], timeout=HANGS_AFTER_S).split()
        process.send_signal(signal.SIGTERM)
        output, errors = process.communicate(timeout=HANGS_AFTER_S)
    assert (process.returncode, output) == (130, "")
    assert "Traceback" not in errors
    # Where no process adopts it, an ended child stays as a zombie.
    for child in map(int, children):
        ended = f"while ps -o stat= -p {child} | grep -qv Z; do sleep 0.05; done"
        subprocess.run(["bash", "-c", ended], check=False, timeout=HANGS_AFTER_S)


def test_a_client_that_leaves_is_no_error(mcp_file: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [*ALMANAC, "mcp", "--home", str(mcp_file.parent)],
        input='{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n',
        stdout=writer,
        stderr=subprocess.PIPE,
        env=environment(mcp_file.parent),
        text=True,
        timeout=HANGS_AFTER_S,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


def test_without_the_sdk_the_command_says_how_to_install_it(
    mcp_file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command_line, "load_extension", command_line.Extension)
    monkeypatch.setitem(sys.modules, "mcp_types", None)
    monkeypatch.delitem(sys.modules, "almanac.mcp.server", raising=False)
    with own_process():
        assert command_line.main(["mcp", "--home", str(mcp_file.parent)]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "pip install 'crypto-almanac[mcp]'" in shown.err
