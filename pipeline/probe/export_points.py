"""Verdicts on the bulk export."""

from pipeline.probe.inquiry import Reply, says_plan
from pipeline.probe.verdicts import (
    EVENT_FIELDS,
    Judge,
    Opinion,
    Replies,
    Unclear,
    accept,
    as_expected,
    compare,
    compare_names,
    reject,
    require,
)


def _export_reply(replies: Replies) -> Reply:
    """Return the export. Raises Unclear: there is none, or the plan has none."""
    reply = replies.get("export")
    if reply.status != 200 or reply.kind == "html":
        raise Unclear(f"no export: {reply.path} was answered {reply.status}")
    return reply


def judge_export_path(expected: str) -> Judge:
    def judge(replies: Replies) -> Opinion:
        reply = replies.get("export")
        tried = [sent.path for sent in replies.all if sent.question.kind == "export"]
        if reply.status == 200 and reply.kind in ("csv", "text"):
            if reply.path == expected:
                return as_expected(expected)
            return require(reply.path, export_path=reply.path)
        if reply.status == 200:
            return reject(f"{reply.kind} at {reply.path}", "expected CSV")
        if says_plan(reply):
            if replies.plan in ("elite", "enterprise"):
                return reject(f"{reply.status} on {replies.plan}", "lists are used")
            return Opinion("unclear", f"{reply.status}: the plan of the key has no export")
        text = f"not at {', '.join(tried)}"
        return reject(text, "set ALMANAC_EXPORT_PATH to the path in the documentation")

    return judge


def judge_export_type(replies: Replies) -> Opinion:
    reply = _export_reply(replies)
    given = reply.headers.get("content-type", "none")
    return as_expected(given) if given.startswith("text/csv") else accept(given)


def _export_header(replies: Replies) -> list[str]:
    rows = _export_reply(replies).csv_rows()
    if not rows:
        raise Unclear("no header")
    return rows[0]


def judge_export_columns(replies: Replies) -> Opinion:
    header = _export_header(replies)
    if "," not in ",".join(header) or len(header) < 2:
        return reject(f"one column: {header[0][:60]}", "expected commas between columns")
    return compare_names([dict.fromkeys(header)], EVENT_FIELDS, "rows")


def judge_export_order(replies: Replies) -> Opinion:
    header = _export_header(replies)
    expected = [name for name in EVENT_FIELDS if name in header]
    given = [name for name in header if name in expected]
    return (
        as_expected("as the fields")
        if given == expected
        else accept(f"{', '.join(given[:3])}, ...")
    )


def judge_export_lists(replies: Replies) -> Opinion:
    header, *rows = [_export_header(replies), *_export_reply(replies).csv_rows()[1:]]
    cells = [
        row[header.index(name)]
        for name in ("categories", "coins")
        for row in rows
        if name in header and len(row) == len(header)
    ]
    if any(cell.startswith("[") for cell in cells):
        return accept("JSON arrays")
    counts = {mark: sum(mark in cell for cell in cells) for mark in (";", "|", ",")}
    best = max(counts, key=lambda mark: counts[mark])
    if not counts[best]:
        raise Unclear(f"no cell of {len(rows)} rows has two elements")
    return compare(f"joined with {best}", "joined with ;", "learnt from the first file")


def judge_export_bytes(replies: Replies) -> Opinion:
    body = _export_reply(replies).body
    marks = "BOM, " if body.startswith(b"\xef\xbb\xbf") else ""
    ends = "CRLF" if b"\r\n" in body else "LF"
    try:
        body.decode("utf-8")
        encoding = "UTF-8"
    except UnicodeDecodeError as error:
        encoding = "UTF-8" if error.start > len(body) - 4 else "not UTF-8"
    found = f"{marks}{encoding}, {ends}"
    if encoding != "UTF-8":
        return reject(found, "such rows are rejected")
    return compare(found, "UTF-8, CRLF")


def judge_export_validators(replies: Replies) -> Opinion:
    headers = _export_reply(replies).headers
    found = [name for name in ("etag", "last-modified") if name in headers]
    if len(found) == 2:
        return as_expected("ETag and Last-Modified")
    note = "each pull downloads the whole export" if not found else ""
    if "last-modified" not in found:
        note = "the download time stands for the snapshot time"
    return accept(", ".join(found) or "neither", note)


def judge_gzip(replies: Replies) -> Opinion:
    encoding = replies.good("large_page").headers.get("content-encoding", "none")
    # The sandbox and many services leave that to a proxy: Almanac requests `identity`.
    return as_expected(encoding) if encoding in ("none", "identity", "gzip") else accept(encoding)


def judge_unmodified(replies: Replies) -> Opinion:
    reply = replies.get("unmodified")
    if reply.status == 304:
        return as_expected("304")
    if reply.status == 200:
        return accept("200", "unchanged lists are sent again")
    return accept(f"{reply.status}")
