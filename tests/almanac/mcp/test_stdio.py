"""`almanac mcp` as a program: clients of each protocol version, its streams, and its end."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters, stdio_client
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

from almanac.mcp.tools import TOOLS
from tests.almanac.mcp.test_toolbox import EXAMPLES
from tests.hangs import HANGS_AFTER_S
from tests.test_cli import ALMANAC, environment

SECRET = "canary-secret-4711"
VERSIONS = ("2025-03-26", "2025-06-18", "2025-11-25", *MODERN_PROTOCOL_VERSIONS)
META = "io.modelcontextprotocol/"
NAMES = [tool.name for tool in TOOLS]


class RawClient:
    """A client that writes and reads lines of JSON-RPC."""

    def __init__(self, process: subprocess.Popen[bytes], version: str) -> None:
        self._process = process
        self._version = version
        self._number = 0
        self.answers: list[str] = []

    def request(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        if self._version in MODERN_PROTOCOL_VERSIONS:
            client = {"name": "raw", "version": "1"}
            params["_meta"] = {
                f"{META}protocolVersion": self._version,
                f"{META}clientInfo": client,
                f"{META}clientCapabilities": {},
            }
        self._write({"id": self._number, "method": method, "params": params})
        assert self._process.stdout is not None
        line = self._process.stdout.readline().decode()
        self.answers.append(line)
        answer: dict[str, Any] = json.loads(line)
        assert (answer["jsonrpc"], answer["id"]) == ("2.0", self._number)
        return answer

    def begin(self) -> None:
        if self._version in MODERN_PROTOCOL_VERSIONS:
            found = self.request("server/discover")["result"]
            assert self._version in found["supportedVersions"]
            return
        client = {"name": "raw", "version": "1"}
        given = {"protocolVersion": self._version, "capabilities": {}, "clientInfo": client}
        found = self.request("initialize", **given)["result"]
        assert found["protocolVersion"] == self._version
        assert found["serverInfo"]["name"] == "almanac"
        self._write({"method": "notifications/initialized"})

    def call(self, name: str, given: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = self.request("tools/call", name=name, arguments=given)["result"]
        return found

    def _write(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self._process.stdin.flush()


@contextmanager
def started(home: Path) -> Iterator[subprocess.Popen[bytes]]:
    variables = {**environment(home), "ALMANAC_API_KEY": SECRET}
    command = [*ALMANAC, "mcp", "--home", str(home)]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=variables,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("version", VERSIONS)
def test_client_of_each_version_lists_and_calls_each_tool(mcp_file: Path, version: str) -> None:
    with started(mcp_file.parent) as process:
        client = RawClient(process, version)
        client.begin()
        tools = client.request("tools/list")["result"]["tools"]
        assert [tool["name"] for tool in tools] == NAMES
        for tool in tools:
            hints = tool["annotations"]
            assert hints["readOnlyHint"]
            assert hints["idempotentHint"]
            assert not hints["destructiveHint"]
            assert not hints["openWorldHint"]
            assert tool["title"]
            assert tool["outputSchema"]["type"] == "object"
        names = NAMES if version in ("2025-03-26", "2026-07-28") else NAMES[:1]
        for name in names:
            found = client.call(name, EXAMPLES[name])
            assert not found.get("isError"), found
            note, text = (content["text"] for content in found["content"])
            assert note.startswith("As of 2")
            assert json.loads(text) == found["structuredContent"]
        refused = client.call("upcoming", {"coins": ["SUN"]})
        assert refused["isError"]
        assert "slug:first-sun" in refused["content"][0]["text"]
        assert "error" in client.request("tools/nothing")
        for answer in client.answers:
            assert SECRET not in answer
            assert str(mcp_file.parent) not in answer
        assert process.stdin is not None
        process.stdin.close()
        assert process.stdout is not None
        assert process.stdout.read() == b""
        assert process.wait(HANGS_AFTER_S) == 0


@pytest.mark.long
@pytest.mark.parametrize("mode", ["auto", "legacy", *MODERN_PROTOCOL_VERSIONS])
def test_client_of_the_sdk_checks_each_answer(mcp_file: Path, mode: str) -> None:
    async def run() -> str:
        program = StdioServerParameters(
            command=ALMANAC[0],
            args=[*ALMANAC[1:], "mcp", "--home", str(mcp_file.parent)],
            env=environment(mcp_file.parent),
        )
        async with Client(stdio_client(program), mode=mode) as client:
            for name in [tool.name for tool in (await client.list_tools()).tools]:
                found = await client.call_tool(name, EXAMPLES[name])
                assert not found.is_error, name
            return client.protocol_version

    expected = HANDSHAKE_PROTOCOL_VERSIONS if mode == "legacy" else MODERN_PROTOCOL_VERSIONS
    assert asyncio.run(run()) == expected[-1]


def test_termination_ends_the_program_and_its_statement(mcp_file: Path) -> None:
    with started(mcp_file.parent) as process:
        client = RawClient(process, VERSIONS[1])
        client.begin()
        assert process.stdin is not None
        endless = (
            "WITH RECURSIVE t AS (SELECT 1 n UNION ALL SELECT n + 1 FROM t) SELECT sum(n) FROM t"
        )
        message = {"name": "query", "arguments": {"sql": endless}}
        call = {"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": message}
        process.stdin.write(json.dumps(call).encode() + b"\n")
        process.stdin.flush()
        children = wait_for_children(process.pid)
        process.send_signal(signal.SIGTERM)
        assert process.wait(HANGS_AFTER_S) == 130
        assert process.stdout is not None
        assert process.stdout.read() == b""
        assert process.stderr is not None
        assert b"Traceback" not in process.stderr.read()
    # Where no process adopts it, an ended child stays as a zombie.
    until_ended = "; ".join(
        f"while ps -o stat= -p {child} | grep -qv Z; do sleep 0.05; done" for child in children
    )
    subprocess.run(["bash", "-c", until_ended], check=False, timeout=HANGS_AFTER_S)


def wait_for_children(pid: int) -> list[int]:
    done = subprocess.run(
        ["bash", "-c", f"until pgrep -P {pid}; do sleep 0.05; done"],
        capture_output=True,
        check=True,
        timeout=HANGS_AFTER_S,
    )
    return [int(found) for found in done.stdout.split()]


def test_home_without_a_file_is_the_answer_of_a_call(tmp_path: Path) -> None:
    with started(tmp_path) as process:
        client = RawClient(process, VERSIONS[0])
        client.begin()
        found = client.call("coverage", {})
        assert found["isError"]
        assert "almanac run" in found["content"][0]["text"]
        assert str(tmp_path) not in client.answers[-1]
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(HANGS_AFTER_S) == 0
        assert process.stderr is not None
        assert "has no warehouse.duckdb" in process.stderr.read().decode()


def test_without_the_sdk_the_command_says_how_to_install_it(mcp_file: Path) -> None:
    hide = (
        "import sys; sys.modules['mcp_types'] = None; sys.argv = ['almanac', 'mcp']; "
        "from almanac.command_line import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", hide],
        input=b"",
        capture_output=True,
        env=environment(mcp_file.parent),
        timeout=HANGS_AFTER_S,
    )
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"pip install 'crypto-almanac[mcp]'" in done.stderr
    assert b"Traceback" not in done.stderr
