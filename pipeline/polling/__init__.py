"""The poll planner: pure functions, but for inputs."""
