"""Pages, the calendar feed and MCP over HTTP, in front of the mirror's interface."""
