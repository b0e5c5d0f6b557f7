"""The signing secrets of webhooks are in memory only, however requests and settings are wrong."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from application.receiver import Receiver, make_verifier
from catalog.contract.signatures import SignatureRejected, sign
from pipeline.settings import SettingsError
from resources.inbox import Inbox
from tests.application.receiver.programs import ReceiveProgram
from tests.hangs import HANGS_AFTER_S
from tests.pipeline.conftest import Almanac
from tests.pipeline.homes_in_days import settings_of
from tests.pipeline.secrecy.repeating_service import PUSH_SECRETS, traces_in
from tests.resources.inbox.deliveries import delivery
from warehouse.clock import utc_now
from warehouse.home import Home

HEADER = "SVC-Signature"
NEWER, OLDER = PUSH_SECRETS


def signed(body: bytes, secret: str = NEWER) -> dict[str, str]:
    return {HEADER: sign(body, secrets=[secret], at=utc_now())}


@pytest.mark.parametrize("as_file", [False, True], ids=["setting", "file"])
def test_the_receiver_writes_its_secrets_nowhere(tmp_path: Path, as_file: bool) -> None:
    file = tmp_path / "key" / "almanac_webhook_secrets"
    file.parent.mkdir()
    file.write_text("\n".join(PUSH_SECRETS))
    file.chmod(0o600)
    given = {"secret": "", "secrets_dir": str(file.parent)} if as_file else {}
    program = ReceiveProgram(
        tmp_path / "data", "--merge", **{"secret": ",".join(PUSH_SECRETS), **given}
    )
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
        if as_file:
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


class Rotation:
    """The file of the secrets, and the verifier of it at each question."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "almanac_webhook_secrets"
        self.file.write_text(OLDER)
        self._settings = settings_of(folder, secrets_dir=folder)

    def accepted(self, *secrets: str) -> list[str]:
        """Return those of some secrets whose signature is accepted."""
        return [secret for secret in secrets if self._accepts(secret)]

    def _accepts(self, secret: str) -> bool:
        headers = [(HEADER.lower().encode(), signed(b"{}", secret)[HEADER].encode())]
        try:
            make_verifier(self._settings).verify(headers, b"{}", now=utc_now())
        except SignatureRejected:
            return False
        return True


@pytest.fixture
def rotation(tmp_path: Path) -> Rotation:
    return Rotation(tmp_path)


@pytest.mark.parametrize("way", ["in place", "by a rename"])
def test_a_secret_is_rotated_by_changing_its_file(rotation: Rotation, way: str) -> None:
    assert rotation.accepted(NEWER, OLDER) == [OLDER]
    for text, accepted in ((f"{NEWER}\n{OLDER}", [NEWER, OLDER]), (NEWER, [NEWER])):
        target = rotation.file if way == "in place" else rotation.file.with_name("newer")
        target.write_text(text)
        target.replace(rotation.file)
        assert rotation.accepted(NEWER, OLDER) == accepted


@pytest.mark.parametrize("damage", ["", "short", None], ids=["empty", "too short", "removed"])
def test_a_file_of_secrets_that_cannot_be_used_accepts_nothing_until_it_can(
    rotation: Rotation, damage: str | None
) -> None:
    if damage is None:
        rotation.file.unlink()
    else:
        rotation.file.write_text(damage)
    with pytest.raises(SettingsError, match="ALMANAC_WEBHOOK_SECRETS") as raised:
        rotation.accepted(NEWER, OLDER)
    assert traces_in(str(raised.value).encode()) == []
    rotation.file.write_text(NEWER)
    assert rotation.accepted(NEWER, OLDER) == [NEWER]


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
        {"webhook_secrets": ",".join([NEWER] * 50)},
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


@pytest.fixture
def checks(almanac: Almanac, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """Run the doctor without its request; return the checks by name."""
    monkeypatch.setattr("application.cli.maintenance._service", lambda *given, **named: iter(()))

    def run(*, code: int = 0, **given: str) -> dict[str, Any]:
        done = almanac("doctor", "--json", code=code, **given)
        assert traces_in(done.output.encode()) == []
        return {check["what"]: check for check in json.loads(done.stdout)}

    return run


def test_doctor_checks_the_settings_of_the_receiver(
    checks: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    assert "webhooks" not in checks()
    found = checks(webhook_secrets=",".join(PUSH_SECRETS))["webhooks"]
    assert found["found"] == f"{HEADER}, 2 secrets"
    found = checks(webhook_secrets="short", code=1)["webhooks"]
    assert (found["holds"], "ALMANAC_WEBHOOK_SECRETS" in found["found"]) == (False, True)
    file = tmp_path / "almanac_webhook_secrets"
    file.write_text(NEWER)
    file.chmod(0o644)
    found = checks(secrets_dir=str(tmp_path))
    assert found["webhooks"]["holds"]
    assert found["secrets"]["is_caution"]
    assert "almanac_webhook_secrets: others can read" in found["secrets"]["found"]
