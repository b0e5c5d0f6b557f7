"""The bytes of a feed against RFC 5545, and in two parsers."""

import re
from pathlib import Path
from tempfile import TemporaryDirectory

import icalendar
import vobject
from hypothesis import given
from hypothesis import strategies as st

from almanac.calendar.feed import FeedQuery, text_line, write_feed
from almanac.core.text import plain, plain_line, plain_with_joiners
from tests.almanac.calendar.test_feed import NOW, PULLED, open_at
from tests.warehouse.answers.handmade import Known

TITLES = (
    'comma, semicolon; colon: quote " backslash \\',
    "line\nfeed\r\nand return\rhere",
    "\\n is no line end, \\N neither, C:\\New \\\\N",
    "BEGIN:VEVENT\r\nEND:VCALENDAR\r\n",
    "null\x00 escape\x1b[31m bell\x07 delete\x7f next\x85 line\u2028paragraph\u2029",
    "عنوان من اليمين \u202eabc\u202c",
    "a" + "👩\u200d🚀" * 60,
    "x" * 66 + "é",
    "x" * 65 + "\\",
    "x" + "\\" * 500 + ",;" * 100,
    " \t ",
    "",
)


def contents_of(titles: list[str]) -> tuple[bytes, dict[str, str]]:
    """Return the feed of events with these titles, and the title that each should show."""
    known = [
        Known(event_id=f"evt_{number:04}", known_from=PULLED, date=NOW, title=title)
        for number, title in enumerate(titles)
    ]
    with TemporaryDirectory() as folder, open_at(Path(folder), known) as db:
        content = write_feed(db, FeedQuery()).content
    return content, {
        event.event_id: plain_with_joiners(" ".join((event.title or "Untitled event").split()))
        for event in known
    }


def check_lines(content: bytes) -> None:
    """Check line ends, folding and characters (RFC 5545, 3.1 and 3.3.11)."""
    assert content.endswith(b"\r\n")
    assert b"\n" not in content.replace(b"\r\n", b"") and b"\r" not in content.replace(b"\r\n", b"")
    for line in content.split(b"\r\n"):
        assert len(line) <= 75
        line.decode()  # no character is cut
        assert (len(line) - len(line.rstrip(b"\\"))) % 2 == 0, "an escape is cut"
    assert not re.search(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]", content)
    for line in re.sub(rb"\r\n[ \t]", b"", content).split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name in (b"SUMMARY", b"DESCRIPTION", b"UID", b"X-WR-CALNAME"):
            assert not re.search(rb"(?<!\\)(?:\\\\)*[,;]", value)
            assert not re.search(rb"(?<!\\)(?:\\\\)*\\[^\\;,nN]", value)


def read_both(content: bytes) -> list[tuple[str, str]]:
    """Return UID and summary of each event, which both parsers read the same."""
    events = icalendar.Calendar.from_ical(content).walk("VEVENT")
    found = [(str(event["uid"]), str(event["summary"])) for event in events]
    calendar = vobject.readOne(content.decode())
    others = calendar.contents.get("vevent", ())
    assert found == [(event.uid.value, event.summary.value) for event in others]
    return found


def test_hostile_titles_are_whole_in_both_parsers() -> None:
    content, titles = contents_of(list(TITLES))
    check_lines(content)
    found = {uid.partition("@")[0]: summary for uid, summary in read_both(content)}
    assert found == titles


@given(st.lists(st.text(max_size=300), min_size=1, max_size=20))
def test_any_text_is_whole_in_both_parsers(texts: list[str]) -> None:
    titles = [plain_line(text) for text in texts]
    lines = [b"BEGIN:VCALENDAR", b"VERSION:2.0"]
    for number, title in enumerate(titles):
        lines += [b"BEGIN:VEVENT", b"UID:%d" % number, b"DTSTART:20260301T060000Z"]
        lines += [text_line("SUMMARY", title), text_line("DESCRIPTION", plain(texts[number]))]
        lines += [b"END:VEVENT"]
    content = b"\r\n".join([*lines, b"END:VCALENDAR", b""])
    check_lines(content)
    assert [summary for _, summary in read_both(content)] == titles
