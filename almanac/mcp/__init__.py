"""The questions of the package as tools of an assistant (Model Context Protocol)."""
