"""The synthetic world, a pure function of seed and time. It imports nothing else of ours."""
