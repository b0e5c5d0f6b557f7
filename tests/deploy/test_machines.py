"""Units and image on a machine that has systemd or podman; elsewhere the tests are skipped.

    podman build --format docker --timestamp 0 -f deploy/Containerfile -t almanac .
    IMAGE=almanac python -m pytest -m long tests/deploy/test_machines.py

The container has no network: it uses the embedded sandbox.
"""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.page import DEPLOY
from tests.hangs import HANGS_AFTER_S, wait_for

pytestmark = pytest.mark.long

PROGRAMS = re.compile(r"/opt/almanac/current/\S+")


def run(*words: str | Path, code: int = 0) -> str:
    done = subprocess.run(words, capture_output=True, text=True, timeout=HANGS_AFTER_S)
    assert done.returncode == code, f"{words}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_understands_every_line_of_the_units(tmp_path: Path) -> None:
    shutil.copytree(DEPLOY / "systemd", tmp_path, dirs_exist_ok=True)
    for path in tmp_path.glob("*.service"):
        # The programs need not be installed here.
        path.write_text(PROGRAMS.sub("/bin/true", path.read_text("utf-8")), "utf-8")
    units = sorted([*tmp_path.glob("*.service"), *tmp_path.glob("*.timer")])
    output = run("systemd-analyze", "verify", "--man=no", *units)
    assert [line for line in output.splitlines() if "almanac" in line] == []


@pytest.fixture(scope="module")
def container(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A container of the image, as the page starts it, with pages and the embedded sandbox."""
    image = os.environ.get("IMAGE")
    if image is None or shutil.which("podman") is None:
        pytest.skip("needs podman, and the name of the image in IMAGE")
    name = f"almanac-test-{os.getpid()}"
    rights = ("--init", "--read-only", "--cap-drop", "all", "--memory", "3g")
    run(
        *("podman", "run", "-d", "--name", name, *rights, "--security-opt", "no-new-privileges"),
        *("--network", "none", "-v", f"{name}:/var/lib/almanac", "--tmpfs", "/tmp"),
        *("-e", "ALMANAC_COINS=bitcoin", image, "ui", "--host", "0.0.0.0"),
    )
    try:
        yield name
    finally:
        run("podman", "rm", "--force", name)
        run("podman", "volume", "rm", name)


def test_the_daemon_of_the_image_is_well_without_rights_and_ends_by_a_signal(
    container: str,
) -> None:
    wait_for(lambda: checked(container)["well"])
    assert run("podman", "exec", container, "id", "-u").split() == ["10001"]
    run("podman", "exec", container, "touch", "/opt/almanac/new", code=1)
    run("podman", "stop", "--time", "300", container)
    (state,) = json.loads(run("podman", "inspect", container))
    assert state["State"]["ExitCode"] == 0


def checked(container: str) -> dict[str, bool]:
    words = ("podman", "exec", container, "almanac", "daemon", "--check", "--json")
    done = subprocess.run(words, capture_output=True, text=True, timeout=HANGS_AFTER_S)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    found: dict[str, bool] = json.loads(lines[0]) if lines else {"well": False}
    return found
