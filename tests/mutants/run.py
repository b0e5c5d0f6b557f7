"""Check that the tests notice planted faults.

The `*.toml` files beside this module declare the faults (see README.md). They are planted in copies
of the working tree, one for each job, in a temporary folder.

Exit codes: 0 if the tests notice every fault; 1 if a fault survives or can't be judged, or if a
test fails without a fault.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 180.0  # a fault can make a test hang: a longer run counts as killed
_PYTEST = ("-m", "pytest", "-x", "-q", "-rfE", "--color=no", "-p", "no:cacheprovider")
_FAILURE = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)


class FaultError(Exception):
    """A fault does not apply, or pytest did not run its tests."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A wrong text in place of the right one, and the tests that must fail then."""

    name: str
    file: str
    old: str
    new: str
    tests: Sequence[str]

    def plant(self, tree: Path) -> str:
        """Write the fault into a tree, and return the text of the file before."""
        path = tree / self.file
        text = path.read_text("utf-8") if path.is_file() else ""
        if (count := text.count(self.old)) != 1:
            raise FaultError(f"the old text is {count} times in {self.file}, expected once")
        path.write_text(text.replace(self.old, self.new), "utf-8")
        return text


def read_faults(only: Sequence[str]) -> list[Fault]:
    """Return the declared faults whose names contain one of `only`, or all."""
    files = sorted(Path(__file__).parent.glob("*.toml"))
    tables = [tomllib.loads(path.read_text("utf-8"))["fault"] for path in files]
    faults = [Fault(**table) for topic in tables for table in topic]
    chosen = [fault for fault in faults if not only or any(part in fault.name for part in only)]
    return chosen or sys.exit(f"error: no fault has a name with {' or '.join(only)}")


def copy_working_tree(target: Path) -> None:
    """Copy the tracked files, and the new ones that are not ignored."""
    command = ["git", "ls-files", "-co", "--exclude-standard", "-z"]
    listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    for name in filter(None, listing.stdout.split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)


@cache
def git_folder() -> str:
    """Return the folder with the history, which a copy of the working tree does not have."""
    command = ["git", "rev-parse", "--absolute-git-dir"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout[:-1]


def find_failure(tree: Path, tests: Sequence[str], timeout_s: float | None = None) -> str | None:
    """Run tests in a tree. Return the first that fails, or None if all pass."""
    with tempfile.TemporaryDirectory(dir=tree.parent, ignore_cleanup_errors=True) as scratch:
        run = subprocess.Popen(
            [sys.executable, *_PYTEST, *tests],
            cwd=tree,
            env={**os.environ, "PYTHONPATH": str(tree), "TMPDIR": scratch, "GIT_DIR": git_folder()},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            output, _ = run.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            return f"(no end within {timeout_s:g} s)"
        finally:
            if run.poll() is None:
                os.killpg(run.pid, signal.SIGKILL)
                run.wait()
    if run.returncode == 0:
        return None
    if run.returncode == 1 and (failure := _FAILURE.search(output)):
        return failure[1]
    raise FaultError(f"pytest ended with code {run.returncode}:\n{output[-2000:]}")


def judge(fault: Fault, trees: SimpleQueue[Path]) -> tuple[str, str]:
    """Plant one fault in a free tree and run its tests. Return the verdict, and a line about it."""
    began, tree = time.monotonic(), trees.get()
    try:
        before = fault.plant(tree)
        try:
            detail = find_failure(tree, fault.tests, TIMEOUT_S)
        finally:
            (tree / fault.file).write_text(before, "utf-8")
        verdict = "survived" if detail is None else "killed"
    except FaultError as error:
        verdict, detail = "error", str(error)
    finally:
        trees.put(tree)
    line = f"{verdict:8} {time.monotonic() - began:5.1f} s  {fault.name}  {detail or ''}\n"
    sys.stderr.write(line)
    return verdict, line


def main() -> int:
    parser = argparse.ArgumentParser(description="Check that the tests notice planted faults.")
    parser.add_argument("--only", action="append", default=[], help="a part of a name; repeatable")
    parser.add_argument("--jobs", type=int, default=1, help="faults at a time")
    asked = parser.parse_args()
    faults, began = read_faults(asked.only), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="faults-", ignore_cleanup_errors=True) as folder:
        trees: SimpleQueue[Path] = SimpleQueue()
        for job in range(asked.jobs):
            copy_working_tree(tree := Path(folder) / str(job))
            trees.put(tree)
        options = ("-n", str(asked.jobs), "--dist", "loadfile")
        targets = sorted({test for fault in faults for test in fault.tests})
        try:
            if failure := find_failure(tree, [*options, *targets]):
                sys.exit(f"error: {failure} fails without a fault; repair it first")
        except FaultError as error:
            sys.exit(f"error: without a fault, {error}")
        sys.stderr.write(f"passed   {time.monotonic() - began:5.1f} s  without a fault\n")
        with ThreadPoolExecutor(asked.jobs) as pool:
            verdicts = list(pool.map(lambda fault: judge(fault, trees), faults))
    bad = [line for verdict, line in verdicts if verdict != "killed"]
    killed = f"{len(verdicts) - len(bad)} of {len(verdicts)} killed"
    sys.stdout.write(f"{killed}, {time.monotonic() - began:.0f} s\n{''.join(bad)}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
