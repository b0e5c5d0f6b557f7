"""Judges the test suite: does it notice a fault planted in the code?

Each patch of a folder is applied to a copy of the working tree, and the tests run there until
the first failure. A patch under which they all pass has SURVIVED, and a test is missing. A patch
may name the tests that should notice it; the others are judged by those of `--tests`.

    python tests/mutants/run.py
    python tests/mutants/run.py --only 07 --tests tests/server -k cursor

Exit codes: 0 every fault was caught, 1 some survived, 2 no verdict (the suite fails without
any patch, a patch does not apply, the tests could not be run). Nothing is written outside a
temporary folder.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).resolve().parents[2]
DEFAULT_FOLDER = ROOT / "tests" / "mutants" / "server"
DEFAULT_TESTS = ("tests/contract", "tests/server")
DEFAULT_TIMEOUT_S = 900.0

_PYTEST = (
    *("-m", "pytest", "-q", "-x", "-rfE", "--color=no", "-p", "no:cacheprovider"),
    # It notices any change of a text; a fault has to be noticed by what it does.
    "--ignore=tests/warehouse/schema/test_snapshots.py",
)
_FAILURE = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)
_TESTS = re.compile(r"^# Tests: (.+)$", re.MULTILINE)
_TESTS_FAILED, _INTERRUPTED = 1, 2
"""Pytest's exit codes; with -x, a module that can't be collected interrupts the run."""
_TAIL_LINES = 25

Verdict = Literal["caught", "SURVIVED", "ERROR"]


class NoVerdict(Exception):
    """The tests could not judge: of the set-up, not of the code."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one patch; `detail` is the first failing test, or what went wrong."""

    patch: str
    verdict: Verdict
    detail: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Workshop:
    """The temporary folder: one copy of the working tree, of which each patch gets its own."""

    folder: Path
    tests: Sequence[str]
    timeout_s: float

    @property
    def pristine(self) -> Path:
        return self.folder / "pristine"

    def copy_working_tree(self) -> None:
        """Copy what git tracks and what is new and not ignored, as it is now."""
        listing = subprocess.run(
            ["git", "ls-files", "-co", "--exclude-standard", "-z"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        for name in filter(None, listing.stdout.split("\0")):
            source, target = ROOT / name, self.pristine / name
            if not source.is_file():
                continue  # tracked, and deleted in the working tree
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)

    def first_failure(self, tree: Path, tests: Sequence[str] | None = None) -> str | None:
        """Run the tests in a tree; None when all pass.

        Raises:
            NoVerdict: pytest ended in another way than with a passed or a failed test.
        """
        scratch = tree.with_name(tree.name + ".tmp")
        scratch.mkdir(exist_ok=True)
        environment = {
            **os.environ,
            # First on the path also for programs that a test starts.
            "PYTHONPATH": str(tree),
            "PYTHONDONTWRITEBYTECODE": "1",
            "TMPDIR": str(scratch),
        }
        try:
            run = subprocess.run(
                [sys.executable, *_PYTEST, *(tests or self.tests)],
                cwd=tree,
                env=environment,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=self.timeout_s,
            )
        except subprocess.TimeoutExpired:
            return f"(no end within {self.timeout_s:g} s)"
        if run.returncode == 0:
            return None
        failures = _FAILURE.findall(run.stdout)
        if failures and run.returncode in (_TESTS_FAILED, _INTERRUPTED):
            return str(failures[0])
        tail = "\n".join((run.stdout + run.stderr).splitlines()[-_TAIL_LINES:])
        raise NoVerdict(f"pytest ended with code {run.returncode}:\n{tail}")

    def judge(self, patch: Path) -> Outcome:
        """Apply one patch to a fresh copy and run the tests there."""
        began = time.perf_counter()
        tree = self.folder / patch.stem
        verdict: Verdict
        try:
            shutil.copytree(self.pristine, tree)
            self._apply(patch, tree)
            failure = self.first_failure(tree, tests_for(patch) or None)
            if failure is not None and "::" in failure:
                # A test that fails by chance has caught nothing.
                control = shutil.copytree(self.pristine, tree.with_name(tree.name + ".control"))
                if self.first_failure(control, [failure]) is not None:
                    raise NoVerdict(f"{failure} fails without the patch as well")
        except NoVerdict as error:
            verdict, detail = "ERROR", str(error)
        else:
            verdict, detail = ("SURVIVED", "") if failure is None else ("caught", failure)
        finally:
            for beside in ("", ".tmp", ".control", ".control.tmp"):
                made = tree.with_name(tree.name + beside)
                if made.exists():
                    shutil.rmtree(made)
        return Outcome(patch.stem, verdict, detail, time.perf_counter() - began)

    def _apply(self, patch: Path, tree: Path) -> None:
        # The ceiling keeps git from taking the tree for a part of a repository around it,
        # where it would skip every path of the patch and say nothing.
        environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(self.folder)}
        for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
            environment.pop(name, None)
        run = subprocess.run(
            ["git", "apply", str(patch)], cwd=tree, env=environment, capture_output=True, text=True
        )
        if run.returncode != 0:
            raise NoVerdict(f"the patch does not apply: {run.stderr.strip()}")


def chosen_patches(folder: Path, only: Sequence[str]) -> list[Path]:
    """Return the patches of a folder, or those with one of `only` among the words of their name."""
    patches = sorted(folder.resolve().glob("*.patch"))
    if only:
        words = [f"-{name}-" for name in only]
        patches = [patch for patch in patches if any(word in f"-{patch.stem}-" for word in words)]
    if not patches:
        raise NoVerdict(f"no patch to judge in {folder}" + (f" named {only}" if only else ""))
    return patches


def tests_for(patch: Path) -> list[str]:
    """Return the tests that a patch names in a line `# Tests: tests/a.py tests/b.py`, else none."""
    found = _TESTS.search(patch.read_text("utf-8"))
    return [] if found is None else found[1].split()


def judge_all(workshop: Workshop, patches: Sequence[Path], *, jobs: int) -> list[Outcome]:
    """Check that the suite passes by itself, then judge each patch, saying so as it goes."""
    workshop.copy_working_tree()
    say("without a patch ...")
    began = time.perf_counter()
    shutil.copytree(workshop.pristine, workshop.folder / "unpatched")
    named = [tests_for(patch) for patch in patches]
    tests = sorted({test for own in named for test in own})
    if not all(named):
        tests = [*workshop.tests, *tests]
    failure = workshop.first_failure(workshop.folder / "unpatched", tests)
    if failure is not None:
        raise NoVerdict(f"the suite must pass without a patch, and fails in {failure}")
    say(f"without a patch: passed, {time.perf_counter() - began:.1f} s")
    outcomes: list[Outcome] = []
    with ThreadPoolExecutor(max_workers=jobs) as pool:
        waiting = [pool.submit(workshop.judge, patch) for patch in patches]
        try:
            for done in as_completed(waiting):
                outcome = done.result()
                outcomes.append(outcome)
                place = f"[{len(outcomes)}/{len(patches)}]"
                say(f"{place} {outcome.patch}: {outcome.verdict} {outcome.detail}")
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return sorted(outcomes, key=lambda outcome: outcome.patch)


def table(outcomes: Sequence[Outcome]) -> str:
    """Return the outcomes as aligned text: patch, seconds, what caught it."""
    width = max(len("patch"), *(len(outcome.patch) for outcome in outcomes))
    lines = [f"{'patch':{width}}  seconds  caught by"]
    for outcome in outcomes:
        first_line = outcome.detail.partition("\n")[0]
        caught_by = first_line if outcome.verdict == "caught" else outcome.verdict
        if outcome.verdict == "ERROR":
            caught_by += f": {first_line}"
        lines.append(f"{outcome.patch:{width}}  {outcome.seconds:7.1f}  {caught_by}")
    caught = sum(outcome.verdict == "caught" for outcome in outcomes)
    return "\n".join([*lines, f"{caught} of {len(outcomes)} caught"])


def say(text: str) -> None:
    """Report progress, apart from the result."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def at_least_one(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {number}")
    return number


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Plant each fault in a copy of the tree and see which test notices it."
    )
    parser.add_argument(
        "folder", nargs="?", type=Path, default=DEFAULT_FOLDER, help="holds the *.patch files"
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="NAME",
        help="judge the patches with these words in their name, as 07 or cursor; repeatable",
    )
    parser.add_argument(
        "--jobs",
        type=at_least_one,
        default=1,
        metavar="N",
        help="patches at once (default 1; tests that measure time may fail on a busy machine)",
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=DEFAULT_TIMEOUT_S,
        metavar="SECONDS",
        help="a run that takes longer counts as caught (default %(default)g)",
    )
    parser.add_argument("--json", action="store_true", help="write the result as JSON")
    parser.add_argument(
        "--tests",
        nargs=argparse.REMAINDER,
        default=list(DEFAULT_TESTS),
        metavar="ARGUMENT",
        help=f"what pytest is given (default {' '.join(DEFAULT_TESTS)}); stands last",
    )
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    asked = parse_arguments(arguments)
    try:
        patches = chosen_patches(asked.folder, asked.only)
        with tempfile.TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True) as folder:
            workshop = Workshop(Path(folder).resolve(), asked.tests, asked.timeout)
            outcomes = judge_all(workshop, patches, jobs=asked.jobs)
    except NoVerdict as error:
        say(f"error: {error}")
        return 2
    if asked.json:
        result = json.dumps([asdict(outcome) for outcome in outcomes], indent=2)
    else:
        result = table(outcomes)
    sys.stdout.write(result + "\n")
    verdicts = {outcome.verdict for outcome in outcomes}
    if "ERROR" in verdicts:
        return 2
    return 1 if "SURVIVED" in verdicts else 0


if __name__ == "__main__":
    sys.exit(main())
