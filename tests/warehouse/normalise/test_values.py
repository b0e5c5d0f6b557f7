"""Single values of an export: each form that is read, each that is rejected, and the reason."""

import json

from tests.warehouse.normalise.catalog_bodies import BatchReader, csv_body, plain

BAD_VALUES = [
    ("id", "", "id: expected a text, but it is missing"),
    ("id", " \t", "id: expected a text, but it is missing"),
    ("id", "x" * 201, "id: expected at most 200 bytes, got 'xxx"),
    ("title", "", "title: expected a text, but it is missing"),
    ("title", " ", "title: expected a text, but it is missing"),
    ("date", "", "date: expected an instant of 1900 to 2200, but it is missing"),
    *(
        ("date", text, f"date: expected an instant of 1900 to 2200, got '{text}'")
        for text in (
            *("infinity", "-infinity", "epoch", "today", "now", "2026-02-30", "08/10/2026"),
            *("2026/10/08", "1899-12-31", "2201-01-01", "20261008", "1791417600", "2026-1-1"),
            *("2026-10-08 (BC)", "2026-10-08T25:00:00Z", "2026-10-08T00:00:00 Mars"),
        )
    ),
    ("dateEnd", "soon", "dateEnd: expected an instant"),
    ("createdAt", "soon", "createdAt: expected an instant"),
    ("updatedAt", "soon", "updatedAt: expected an instant"),
    ("lastVerifiedAt", "soon", "lastVerifiedAt: expected an instant"),
    ("isEstimated", "maybe", "isEstimated: expected true or false, got 'maybe'"),
    *(
        ("impact", text, f"impact: expected a number of the scale or a band, got '{text}'")
        for text in ("nan", "inf", "1e999", "-0.1", "10.01", "huge", "7,5", "1_0")
    ),
]


def test_an_unreadable_value_rejects_its_row_with_a_reason(batches: BatchReader) -> None:
    rows = [plain(**{field: text}) for field, text, _ in BAD_VALUES]
    read = batches.read("export", csv_body([*rows, plain(id="good")]))
    assert (read.arrived, read.good, read.rejected) == (len(rows) + 1, 1, len(rows))
    found = batches.rejected()
    assert [position for position, _, _ in found] == [*range(len(rows))]
    for (_, words, raw), (field, text, reason) in zip(found, BAD_VALUES, strict=True):
        assert words.startswith(reason), (field, text)
        assert isinstance(json.loads(raw), dict)
    assert batches.only_row()["position"] == len(rows)


GOOD_VALUES = [
    *(
        ("date", text, "date", f"2026-10-08T{time}+00:00")
        for text, time in (
            ("2026-10-08", "00:00:00"),
            (" 2026-10-08 ", "00:00:00"),
            ("2026-10-08T05:00:00Z", "05:00:00"),
            ("2026-10-08t05:00:00z", "05:00:00"),
            ("2026-10-08T05:00", "05:00:00"),
            ("2026-10-08 05:00:00", "05:00:00"),
            ("2026-10-08T05:00:00.25Z", "05:00:00.250000"),
            ("2026-10-08T05:00:00+02:00", "03:00:00"),
            ("2026-10-08T05:00:00-0130", "06:30:00"),
        )
    ),
    *(("isEstimated", text, "is_estimated", True) for text in ("true", "TRUE", "1", "Yes")),
    *(("isEstimated", text, "is_estimated", False) for text in ("false", "False ", "0", "no")),
    ("isEstimated", "", "is_estimated", None),
    *(
        ("impact", text, "impact_band", band)
        for text, band in (
            *(("0", "Low"), ("2.49", "Low"), ("2.5", "Mid"), ("5.0", "High"), ("7.5", "Critical")),
            *(("10", "Critical"), ("-0.0", "Low"), ("high", "High"), ("MID", "Mid"), ("", None)),
        )
    ),
    ("impact", "-0.0", "impact", 0.0),
    ("impact", "high", "impact", None),
    ("title", "🚀 <b>live</b>", "title", "🚀 <b>live</b>"),
    ("dateType", "decade", "date_type", "decade"),
]


def test_a_value_in_any_accepted_form_is_read(batches: BatchReader) -> None:
    rows = [plain(**{field: text}) for field, text, _, _ in GOOD_VALUES]
    assert batches.read("export", csv_body(rows)).good == len(rows)
    for row, (field, text, column, value) in zip(batches.seen(), GOOD_VALUES, strict=True):
        read = row[column].isoformat() if column == "date" else row[column]
        assert read == value, (field, text)
