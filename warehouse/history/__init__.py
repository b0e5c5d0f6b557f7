"""Observations folded into versions: plan, fold, merge, checkpoints, partitions, verify."""
