"""docs/push.md agrees with the program."""

import re
from pathlib import Path

from catalog.contract.constants import ACCEPTED_FORMS
from pipeline.settings import described
from tests.deploy.page import PUSH_PAGE, blocks, blocks_of
from tests.deploy.test_operate import CHECKED, Machine
from tests.resources.inbox.deliveries import START, bodies_in, delivery, store
from tests.test_cli import ROOT
from warehouse.home import Home

TEXT = PUSH_PAGE.read_text("utf-8")


def section(title: str) -> str:
    return TEXT.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_every_block_of_commands_says_where_it_runs() -> None:
    marks = {block.mark for block in blocks(PUSH_PAGE) if block.language == "sh"}
    tried_by_the_readme_test = {"push sandbox", "push receiver", "pushed"}
    assert marks == {*CHECKED, "inbox", *tried_by_the_readme_test} - {"upgrade"}


def test_every_status_of_the_receiver_is_on_the_page() -> None:
    code = (ROOT / "application" / "receiver.py").read_text("utf-8")
    given = {*re.findall(r"Refused\((\d+)", code), *re.findall(r"status_code=(\d+)", code)}
    assert {"204", "401", "413", "503"} <= given
    rows = [row.split(" | ")[0] for row in section("Statuses").splitlines() if "|" in row]
    listed = {status for row in rows for status in re.findall(r"\d+", row)}
    of_the_frameworks = {"200", "404", "405"}
    assert given | of_the_frameworks == listed - {"502", "504"}, "502 is of the proxy"


def test_every_form_of_a_signature_and_every_setting_is_named_as_it_is() -> None:
    rows = re.findall(r"^\| `([^`]+)` \|", section("Signatures"), re.MULTILINE)
    assert set(rows) == set(ACCEPTED_FORMS)
    settings = {name for name, _, _ in described()}
    assert set(re.findall(r"\bALMANAC_[A-Z_]+\b", TEXT)) <= settings


def test_the_folder_of_the_inbox_that_is_copied_by_the_page_is_an_inbox(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    store(machine.home, START, delivery(1))
    (copy,) = blocks_of("inbox", PUSH_PAGE)
    machine.run(copy.text)
    restored = Home(tmp_path / "restored")
    restored.root.mkdir()
    (tmp_path / "backups-inbox" / "inbox").rename(restored.inbox)
    assert bodies_in(restored) == [delivery(1)]
