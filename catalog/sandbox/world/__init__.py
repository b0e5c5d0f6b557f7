"""The synthetic world, a pure function of seed and time. It imports no other package of ours."""
