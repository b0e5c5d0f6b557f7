"""A digest as a message: JSON for programs, blocks for Slack; and the choice of a form.

Belongs here: those two forms. Does not: sending them (the application does), the words (texts).
"""

from typing import Any, Final, Literal

from almanac.digest.content import Digest, Section
from almanac.digest.texts import (
    Line,
    as_markdown,
    as_text,
    heading,
    lines,
    more,
    notes,
    period,
    summary,
)
from almanac.forms.markup import json_text, mrkdwn

DigestForm = Literal["table", "markdown", "json", "slack"]
FORMS: Final[tuple[DigestForm, ...]] = ("table", "markdown", "json", "slack")
LISTED: Final = 10
"""The most events of a section that people are shown by default."""

SLACK_TEXT_MAX: Final = 3_000
"""Characters of a text object (docs.slack.dev, text object)."""
SLACK_BLOCKS_MAX: Final = 50
"""Blocks of a message (docs.slack.dev, blocks)."""
SLACK_ALL_MAX: Final = 12_000
"""Characters of all texts. The documentation gives no limit, but Slack refused 13,200
(msg_blocks_too_long, slackapi/bolt-js issue 2509)."""
_ROW: Final = (
    *("kind", "event_id", "version", "known_from", "title", "coins", "categories", "status"),
    *("old_value", "new_value", "shift_days", "displayed_date", "date_precision", "earliest"),
    *("latest", "impact", "impact_band", "source_url"),
)


def in_form(digest: Digest, form: DigestForm) -> str:
    """Return a digest as a text that ends with a line end."""
    if form == "markdown":
        return as_markdown(digest)
    if form == "table":
        return as_text(digest)
    return json_text(as_slack(digest) if form == "slack" else as_json(digest)) + "\n"


def as_json(digest: Digest) -> dict[str, Any]:
    """Return a digest as a value of JSON; instants are datetimes.

    `counts` has every kind that occurred; `rows` the changes, one per version and kind. `text` is
    the digest in one line, which chats show.
    """
    return {
        "text": f"Almanac, {period(digest)}: {summary(digest)}.",
        "since": digest.since,
        "until": digest.until,
        "first_pull_at": digest.first_pull_at,
        "last_pull_at": digest.last_pull_at,
        "stale": digest.stale_for is not None or digest.last_pull_at is None,
        "coins": digest.coins,
        "min_impact": digest.min_impact,
        "unscored": digest.unscored,
        "counts": {
            section.kind: {"changes": section.changes, "events": section.events}
            for section in digest.sections
        },
        "not_listed": {section.kind: section.more for section in digest.sections if section.more},
        "rows": [{name: row[name] for name in _ROW} for row in digest.rows()],
    }


def as_slack(digest: Digest) -> dict[str, Any]:
    """Return a digest as the body of a message for a webhook of Slack.

    Texts of the service make no link and no mention. What does not fit is counted.
    """
    head = f"Almanac, {period(digest)}: {summary(digest)}."
    blocks = [_block("*" + mrkdwn(f"Almanac, {period(digest)}") + "*: " + mrkdwn(summary(digest)))]
    blocks.append({"type": "context", "elements": [_text(mrkdwn(" ".join(notes(digest))))]})
    room = SLACK_ALL_MAX - sum(map(_size, blocks))
    for number, section in enumerate(digest.sections):
        # Each section may use what those before it left.
        share = min(SLACK_TEXT_MAX, room // (len(digest.sections) - number))
        block = _block(_section(section, share))
        room -= _size(block)
        blocks.append(block)
    return {"text": mrkdwn(head)[:SLACK_TEXT_MAX], "blocks": blocks}


def _section(section: Section, room: int) -> str:
    """Return the heading and as many lines as have room, with the count of the others."""
    found, listed = [f"*{mrkdwn(heading(section))}*"], list(lines(section))
    used, reserve = len(found[0]), len("\n_and 1,000,000 more_")
    for number, line in enumerate(listed):
        text = _line(line)
        rest = section.more + len(listed) - number - 1
        if used + len(text) + 1 + (reserve if rest else 0) > room:
            found.append(f"_and {section.more + len(listed) - number:,} more_")
            return "\n".join(found)
        found.append(text)
        used += len(text) + 1
    if rest_text := more(section):
        found.append(f"_{rest_text}_")
    return "\n".join(found)


def _line(line: Line) -> str:
    title = mrkdwn(line.title)
    linked = f"<{line.url.replace('&', '&amp;')}|{title}>" if line.url else title
    impact = f"  ·  impact {mrkdwn(line.impact)}" if line.says_impact else ""
    coins = f" {mrkdwn(line.coins)}" if line.coins else ""
    return f"• {linked}{coins}: {mrkdwn(line.what)}{impact}"


def _block(text: str) -> dict[str, Any]:
    return {"type": "section", "text": _text(text)}


def _text(text: str) -> dict[str, Any]:
    # Verbatim: Slack turns no address, channel or name in a title into a link.
    return {"type": "mrkdwn", "text": text[:SLACK_TEXT_MAX], "verbatim": True}


def _size(block: dict[str, Any]) -> int:
    texts = block["elements"] if "elements" in block else [block["text"]]
    return sum(len(text["text"]) for text in texts)
