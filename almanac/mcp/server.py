"""The MCP server over a published file: its tools, for standard input and output or over HTTP."""

import asyncio
from typing import Any, Final

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server

from almanac.errors import AlmanacError
from almanac.forms import json_text
from almanac.mcp.tools import OUTPUT_SCHEMA, TOOLS, Toolbox, ToolSpec

NAME: Final = "almanac"
INSTRUCTIONS: Final = (
    "A warehouse of dated crypto-market events, with every version of each event and the time it "
    "became known. Give as_of to ask what was known at a past time. State as_of and the snapshot "
    "with an answer. If truncated is true, say so or read on."
)


def make_server(toolbox: Toolbox) -> Server[Any]:
    """Return a server with the tools of a toolbox."""

    async def list_tools(
        context: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_describe(tool) for tool in TOOLS])

    async def call_tool(
        context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        try:
            answer = await asyncio.to_thread(toolbox.call, params.name, params.arguments or {})
        except AlmanacError as error:
            text = types.TextContent(type="text", text=str(error))
            return types.CallToolResult(content=[text], is_error=True)
        text = types.TextContent(type="text", text=json_text(answer))
        return types.CallToolResult(content=[text], structured_content=answer)

    return Server(
        NAME,
        title="Almanac",
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def _describe(tool: ToolSpec) -> types.Tool:
    return types.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=tool.input_schema,
        output_schema=OUTPUT_SCHEMA,
        annotations=types.ToolAnnotations(
            read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
        ),
    )


async def serve_stdio(toolbox: Toolbox) -> None:
    """Answer a client on standard input and output until it closes them."""
    from mcp.server.stdio import stdio_server

    server = make_server(toolbox)
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())
