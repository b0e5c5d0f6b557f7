"""`almanac verify`: landing against lake against tables."""

from typing import Annotated

import typer

from pipeline.console import EXIT_ERROR, Table, people, print_json
from pipeline.homes import home_there
from pipeline.options import JsonOption
from warehouse.verify import verify as verify_home
from warehouse.verify_files import Finding


def verify(
    deep: Annotated[
        bool,
        typer.Option("--deep", help="Also the hash of every file, and every row against a replay."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Check that landing, lake and tables agree. Exit code 1 when something does not."""
    home = home_there()
    findings: list[Finding] = []
    with people.status("Verifying ...") as status:
        for finding in verify_home(home, deep=deep):
            findings.append(finding)
            status.update(f"Verified: {finding.check} ...")
    if as_json:
        print_json(
            [
                {
                    "check": one.check,
                    "looked_at": one.looked_at,
                    "wrong": list(one.wrong),
                    "notes": list(one.notes),
                }
                for one in findings
            ]
        )
    else:
        _show(findings)
    if not all(finding.holds for finding in findings):
        raise typer.Exit(EXIT_ERROR)


def _show(findings: list[Finding]) -> None:
    table = Table("Check", "Looked at", "Holds")
    for finding in findings:
        table.add_row(finding.check, f"{finding.looked_at:,}", "yes" if finding.holds else "NO")
    people.print(table)
    for finding in findings:
        for wrong in finding.wrong:
            people.print(f"{finding.check}: {wrong}", soft_wrap=True)
        for note in finding.notes:
            people.print(f"Note: {note}", soft_wrap=True)
