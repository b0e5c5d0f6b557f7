"""The peak memory of a process, measured by itself."""

from pathlib import Path


def peak_bytes() -> int:
    """Return the peak memory of this process since it started its program.

    Not `ru_maxrss`: on Linux that includes the parent's memory at the fork, over a gigabyte for a
    child of a long test run.
    """
    for line in Path("/proc/self/status").read_text("ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("the system does not report the peak memory of a process")
