"""The queries of the package as tools for an assistant (Model Context Protocol)."""
