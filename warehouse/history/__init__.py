"""Observations folded into versions: plan, fold, merge, checkpoints, partitions, verify.

The rules are in docs/history.md. The tests are in tests/history and tests/crashes.
"""
