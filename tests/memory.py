"""How much memory a process took, measured by itself."""

from pathlib import Path


def peak_bytes() -> int:
    """Return the most memory that this process held since it began its program.

    Not `ru_maxrss`: on Linux that also counts what the process was a copy of before its program
    began, which for a child of a long test run is a gigabyte and more.
    """
    for line in Path("/proc/self/status").read_text("ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("the system does not tell how much memory a process took")
