"""`almanac probe`: ask a service what the specification leaves open, with at most 30 requests."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from almanac.console import (
    EXIT_ERROR,
    EXIT_USAGE,
    JsonOption,
    Table,
    fail,
    people,
    show_steps,
    warnings,
)
from pipeline.console import folded, print_json
from pipeline.home_location import locate_home
from pipeline.probe.questions import MOST_REQUESTS, Question, count_requests, list_questions
from pipeline.session import open_unclaimed_service
from pipeline.settings import SettingsError, read_settings
from warehouse.clock import utc_now

if TYPE_CHECKING:
    from pipeline.probe.verdicts import PointFinding


def probe(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the requests and their cost, and send none.")
    ] = False,
    max_requests: Annotated[
        int, typer.Option(min=1, max=MOST_REQUESTS, help="Send at most so many requests.")
    ] = MOST_REQUESTS,
    write: Annotated[
        Path | None,
        typer.Option(
            help="Write the settings that differ into this env file; other lines stay. By default "
            "they are printed."
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Start without asking.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Ask a service what its specification leaves open; compare it with what Almanac expects.

    The requests are shown first. It stops at the first 429, and if the key is refused.
    """
    settings = read_settings()
    home = locate_home(settings)
    try:
        source = settings.source
    except SettingsError as error:
        fail(str(error), code=EXIT_USAGE)
    export_path = "/" + settings.export_path.lstrip("/")
    questions = list_questions(export_path)
    usual, most = count_requests(questions, max_requests)
    if write is not None and not write.resolve().parent.is_dir():
        fail(f"--write {write}: there is no such folder. Nothing was sent.", code=EXIT_USAGE)
    if dry_run and as_json:
        print_json({"service": source, "requests": usual, "at_most": most, "plan": [
            {"target": question.target, "answers": question.answers, "tries": question.tries}
            for question in questions
        ]})  # fmt: skip
        return
    if not as_json:
        _show_plan(source, questions, usual, most)
    if dry_run:
        people.print("Nothing was sent.")
        return
    _allow(yes=yes, as_json=as_json)
    # Imported here, so that a dry run needs no HTTP library.
    from pipeline.probe.inquiry import ask
    from pipeline.probe.points import count_verdicts, judge_points, needed_settings
    from pipeline.probe.probe_evidence import EvidenceFolder, format_settings, write_settings

    with open_unclaimed_service(settings) as service, show_steps("Asking ...") as step:
        evidence = EvidenceFolder(home.state, key=service.key, now=utc_now())
        inquiry = ask(
            service,
            questions,
            most=max_requests,
            on_request=lambda question: step(f"Asking: {question.answers} ..."),
            on_reply=evidence.keep_reply,
        )
        left = service.limiter.left()
    findings = judge_points(inquiry, export_path=export_path)
    needed = needed_settings(findings)
    report: dict[str, Any] = {
        "service": source,
        "requests": inquiry.requests,
        "quota_left": left,
        "stopped": inquiry.stopped,
        "verdicts": count_verdicts(findings),
        "settings": needed,
        "points": [asdict(found) for found in findings],
    }
    evidence.keep_report(report)
    folder = evidence.path
    if as_json:
        print_json({**report, "evidence": str(folder)})
    else:
        _show(findings, report, folder)
    try:
        if write is not None and needed:
            write_settings(write, needed)
            warnings.print(f"Wrote {', '.join(needed)} to {write}.", soft_wrap=True)
        elif write is not None and not inquiry.stopped:
            warnings.print(f"No setting is needed; {write} is unchanged.", soft_wrap=True)
        elif needed and not as_json:
            people.print("Set these, in .env or in the environment:")
            for line in format_settings(needed):
                people.print(f"  {line}", soft_wrap=True)
    except (ValueError, OSError) as error:
        listed = ", ".join(f"{name}={value}" for name, value in needed.items())
        fail(f"{error}. Nothing was written. The settings: {listed}")
    if inquiry.stopped:
        fail(f"stopped: {inquiry.stopped}. The points without an answer are `not asked`.")


def _show_plan(source: str, questions: tuple[Question, ...], usual: int, most: int) -> None:
    table = Table("", "Request (GET)", "Shows")
    for number, question in enumerate(questions, 1):
        answers = question.answers
        if question.tries > 1:
            answers += f"; up to {question.tries} paths"
        table.add_row(str(number), folded(question.target), folded(answers))
    people.print(table)
    people.print(
        f"{usual} requests to {source}, at most {most} if the export is at another path. Each "
        "counts against the monthly quota of the key.",
        soft_wrap=True,
    )


def _allow(*, yes: bool, as_json: bool) -> None:
    if yes:
        return
    if as_json or not sys.stdin.isatty():
        fail("Not started; pass --yes to confirm", code=EXIT_USAGE)
    if not typer.confirm("Start?", default=True):
        fail("Not started", code=EXIT_ERROR)


def _is_after_stop(found: "PointFinding", report: dict[str, Any]) -> bool:
    return bool(report["stopped"]) and found.verdict == "not asked"


_MARKS = {"same": "same", "differs": "DIFFERS", "not asked": "not asked", "unclear": "unclear"}


def _show(findings: "list[PointFinding]", report: dict[str, Any], folder: Path) -> None:
    counts, requests = report["verdicts"], report["requests"]
    sent = "1 request was sent" if requests == 1 else f"{requests} requests were sent"
    if not counts["same"] + counts["differs"]:
        people.print(f"No point could be judged; {sent}. Evidence: {folder}", soft_wrap=True)
        return
    table = Table("Point", "Expected", "Found", "Verdict", "Almanac")
    for found in findings:
        if found.verdict == "same" or _is_after_stop(found, report):
            continue
        names = " ".join(f"{name}={value}" for name, value in found.settings.items())
        action = " ".join(part for part in (found.action, names) if part)
        about = ": ".join(part for part in (action, found.note) if part)
        table.add_row(
            *(folded(found.point), folded(found.expected), folded(found.found)),
            *(_MARKS[found.verdict], folded(about)),
        )
    if table.row_count:
        people.print(table)
    if report["stopped"]:
        unasked = [found.point for found in findings if _is_after_stop(found, report)]
        people.print(f"Not asked: {', '.join(unasked) or 'nothing'}.", soft_wrap=True)
    people.print(
        f"{counts['same']} points are as expected, {counts['differs']} differ, "
        f"{counts['unclear']} could not be judged, {counts['not asked']} were not asked.",
        soft_wrap=True,
    )
    left = report["quota_left"]
    rest = "" if left is None else f"; {left:,} are left this month"
    people.print(f"{sent}{rest}.", soft_wrap=True)
    people.print(f"The responses, without the key, are in {folder}.", soft_wrap=True)
