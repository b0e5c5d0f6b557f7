"""The poll planner: pure functions, except inputs."""
