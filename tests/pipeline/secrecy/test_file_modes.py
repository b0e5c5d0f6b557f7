"""Files are private, and the signing secrets of webhooks are in memory only."""

import json
import os
import stat
import subprocess
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from pydantic import SecretStr

from almanac.core.timestamps import utc_now
from application.cli.maintenance import PACKAGES
from application.receiver import Receiver, make_verifier
from catalog.contract.signatures import SignatureRejected, sign
from pipeline.settings import SettingsError
from tests.application.receiver.programs import ReceiveProgram
from tests.hangs import HANGS_AFTER_S
from tests.pipeline.conftest import Almanac
from tests.pipeline.homes_in_days import settings_of
from tests.pipeline.secrecy.repeating_service import PUSH_SECRETS, traces_in
from tests.pipeline.small_home import SmallHome
from tests.reading import list_files
from tests.test_cli import ALMANAC, environment
from tests.warehouse.inbox.deliveries import delivery
from warehouse.files.storage import is_readable_by_others
from warehouse.home import Home
from warehouse.landing.inbox import Inbox


def start(home: Path, *words: str, umask: int = 0o022, **given: str) -> str:
    """Run a command as from a shell with the usual mask."""
    done = subprocess.run(
        [*ALMANAC, *words],
        cwd=home.parent,
        env={**environment(home), "ALMANAC_COINS": "bitcoin", **given},
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER_S,
        umask=umask,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def modes_below(*roots: Path) -> dict[str, int]:
    found = [path for root in roots for path in (root, *root.rglob("*"))]
    return {str(path): stat.S_IMODE(path.lstat().st_mode) for path in found}


def test_what_a_command_makes_is_its_groups_by_a_setting_and_an_answer_is_as_its_user_wants(
    tmp_path: Path,
) -> None:
    """All files of a run, Dagster's too, are checked in test_canary.py."""
    expected = {0o750, 0o640}
    small = SmallHome(tmp_path / "data")
    small.land("events", body=b'{"data": [{"id": "a", "title": "Listing", "date": "2026-04-01"}]}')
    start(small.home.root, "merge", ALMANAC_SHARED="group")
    modes = modes_below(small.home.root / "parquet")
    assert len(list_files(small.home, "event_changes")) == 1
    assert set(modes.values()) == expected
    for path in (small.home.warehouse, *small.home.root.glob("checkpoints/*")):
        assert stat.S_IMODE(path.stat().st_mode) & ~0o200 == 0o440
    target = tmp_path / "answer.csv"
    start(small.home.root, "sql", "SELECT 1 AS a", "--format", "csv", "-o", str(target))
    assert stat.S_IMODE(target.stat().st_mode) == 0o644


def test_doctor_reports_files_that_others_can_read_and_restricts_them(
    tmp_path: Path, almanac: Almanac
) -> None:
    small = SmallHome(tmp_path / "data")
    small.land("coins")
    root = small.home.root
    for path in (root, *root.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    link = root / "link"
    link.symlink_to(tmp_path)
    before = stat.S_IMODE(tmp_path.stat().st_mode)
    assert "others can read" in almanac("doctor", home=str(root)).stdout
    found = json.loads(almanac("doctor", "--json", home=str(root)).stdout)
    assert [check["is_caution"] for check in found if check["what"] == "files"] == [True]
    assert len(found) > len(PACKAGES)
    assert "no longer readable by others" in almanac("doctor", "--fix", home=str(root)).stdout
    assert [path for path, mode in modes_below(root).items() if mode & 0o077] == [str(link)]
    assert stat.S_IMODE(tmp_path.stat().st_mode) == before
    assert "others can read" not in almanac("doctor", home=str(root)).stdout


@pytest.mark.skipif(os.getuid() != 0, reason="only root can own the file of this test")
def test_a_credential_that_root_gives_this_user_is_not_open_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = tmp_path / "api-key"
    given.touch()
    for mode, is_open in ((0o440, False), (0o444, True), (0o400, False)):
        given.chmod(mode)
        assert is_readable_by_others(given) is (mode != 0o400), "as root, of whom the file is"
        with monkeypatch.context() as patched:
            patched.setattr(os, "getuid", lambda: 997)
            assert is_readable_by_others(given) is is_open
    os.chown(given, 0, 997)
    given.chmod(0o440)
    monkeypatch.setattr(os, "getuid", lambda: 997)
    assert is_readable_by_others(given), "a group of others"


HEADER = "SVC-Signature"
NEWER, OLDER = PUSH_SECRETS


def signed(body: bytes, secret: str = NEWER) -> dict[str, str]:
    return {HEADER: sign(body, secrets=[secret], at=utc_now())}


def test_the_receiver_writes_its_secrets_nowhere(tmp_path: Path) -> None:
    file = tmp_path / "key" / "almanac_webhook_secrets"
    file.parent.mkdir()
    file.write_text("\n".join(PUSH_SECRETS))
    file.chmod(0o600)
    given = {"secret": "", "secrets_dir": str(file.parent)}
    program = ReceiveProgram(tmp_path / "data", "--merge", **given)
    try:
        program.start()
        statuses = [
            httpx.post(
                program.url, content=body, headers=headers, timeout=HANGS_AFTER_S
            ).status_code
            for body, headers in (
                (delivery(1), signed(delivery(1))),
                (delivery(2), signed(delivery(2), OLDER)),
                (b"unreadable", signed(b"unreadable")),
                (delivery(3), signed(delivery(4))),
                (delivery(3), {HEADER: "t=1,v1=x"}),
                (delivery(3), {}),
            )
        ]
        file.write_text("short")
        httpx.post(
            program.url, content=delivery(5), headers=signed(delivery(5)), timeout=HANGS_AFTER_S
        )
        code, output, errors = program.end()
    finally:
        program.close()
    assert statuses == [204, 204, 204, 401, 401, 401]
    assert code == 130
    assert traces_in((output + errors).encode()) == []
    files = [path for path in tmp_path.rglob("*") if path.is_file() and path != file]
    assert any(program.home.inbox in path.parents for path in files)
    assert [path for path in files if traces_in(str(path).encode() + path.read_bytes())] == []


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The file of the secrets, which has the older one."""
    file = tmp_path / "almanac_webhook_secrets"
    file.write_text(OLDER)
    return file


def accepted(file: Path, *secrets: str) -> list[str]:
    """Return those of some secrets whose signature is accepted."""
    found = []
    for secret in secrets:
        verifier = make_verifier(settings_of(file.parent, secrets_dir=file.parent))
        headers = [(HEADER.lower().encode(), signed(b"{}", secret)[HEADER].encode())]
        with suppress(SignatureRejected):
            verifier.verify(headers, b"{}", now=utc_now())
            found.append(secret)
    return found


def test_a_secret_is_rotated_by_changing_its_file(file: Path) -> None:
    assert accepted(file, NEWER, OLDER) == [OLDER]
    for text, expected in ((f"{NEWER}\n{OLDER}", [NEWER, OLDER]), (NEWER, [NEWER])):
        file.write_text(text)
        assert accepted(file, NEWER, OLDER) == expected


@pytest.mark.parametrize("damage", ["short", None], ids=["too short", "removed"])
def test_a_file_of_secrets_that_cannot_be_used_accepts_nothing_until_it_can(
    file: Path, damage: str | None
) -> None:
    if damage is None:
        file.unlink()
    else:
        file.write_text(damage)
    with pytest.raises(SettingsError, match="ALMANAC_WEBHOOK_SECRETS") as raised:
        accepted(file, NEWER, OLDER)
    assert traces_in(str(raised.value).encode()) == []
    file.write_text(NEWER)
    assert accepted(file, NEWER, OLDER) == [NEWER]


def test_no_repr_shows_a_secret(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, webhook_secrets=SecretStr(",".join(PUSH_SECRETS)))
    verifier = make_verifier(settings)
    receiver = Receiver(lambda: verifier, Inbox(Home(tmp_path)), utc_now, path="/")
    shown = f"{settings!r} {verifier!r} {receiver!r} {settings.signing_secrets()!r}"
    shown += f" {settings.model_dump()!r}"
    assert traces_in(shown.encode()) == []


@pytest.mark.parametrize(
    "given",
    [
        {"webhook_secrets": f"{NEWER},short"},
        {"webhook_secrets": NEWER, "secrets_dir": "missing"},
        {"webhook_secrets": NEWER, "signature_header": "a b"},
    ],
    ids=str,
)
def test_settings_that_cannot_be_used_are_named_and_not_shown(
    almanac: Almanac, given: dict[str, str]
) -> None:
    done = almanac("receive", code=2, **given)
    assert done.stderr.startswith("almanac: ALMANAC_")
    assert done.stderr.count("\n") == 1
    assert traces_in(done.output.encode()) == []
