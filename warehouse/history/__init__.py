"""Observations folded into versions: fold, day, change log, checkpoints, merge, verify."""
