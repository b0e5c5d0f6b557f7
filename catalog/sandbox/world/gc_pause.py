"""Pauses of the garbage collector while long-lived objects are made."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause the garbage collector, which would walk the new objects again and again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextmanager
def kept_from_collector() -> Iterator[None]:
    """Exclude all present objects from garbage collection, garbage or not.

    For a program that has made what it needs; it affects the whole process.
    """
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
