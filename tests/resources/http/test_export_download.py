"""The export in a file: its metadata, broken exports, and exports that only look truncated."""

import csv
import io
from datetime import date
from pathlib import Path

import httpx
import pytest

from catalog.sandbox.pytest_plugin import STANDS_AT
from resources.errors import NotData, RequestRejected, TooSlow, TruncatedBody
from resources.http.client import ExportPull
from tests.resources.conftest import MakeClient
from tests.resources.fakes import answering, days, mocked
from warehouse.landing.batches import Scope

MARCH = days(date(2026, 3, 1), date(2026, 3, 31))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "export.csv"


def pull_of(text: bytes | str, file: Path, *, may_be_empty: bool = False) -> ExportPull:
    content = text if isinstance(text, bytes) else text.encode()
    answer = httpx.Response(200, content=content, headers={"Content-Type": "text/csv"})
    return mocked(answering(answer)).export(file, Scope(), may_be_empty=may_be_empty)


class TestTheSandbox:
    def test_an_export_is_pulled_completely_with_its_metadata(
        self, make_client: MakeClient, file: Path
    ) -> None:
        client = make_client()
        pull = client.export(file, MARCH)
        body = file.read_bytes()
        rows = list(csv.DictReader(io.StringIO(body.decode(), newline="")))
        assert pull.rows == len(rows) > 0
        assert pull.headers["last-modified"] == "Mon, 02 Mar 2026 00:05:00 GMT"
        assert (pull.date, pull.date_doubt) == (STANDS_AT, "")
        assert pull.headers["content-type"].startswith("text/csv")
        assert pull.headers["etag"]
        assert pull.status == 200

    def test_an_unchanged_export_is_not_sent_again(
        self, make_client: MakeClient, file: Path
    ) -> None:
        client = make_client()
        first = client.export(file, MARCH)
        file.write_text("kept")
        second = client.export(file, MARCH, validators={"If-None-Match": first.headers["etag"]})
        assert second.status == 304
        assert (second.rows, second.suspicions) == (0, ())
        assert file.read_text() == "kept"
        assert client.export(file, MARCH, validators={"If-None-Match": 'W/"other"'}).status == 200

    def test_a_truncated_export_is_an_error_or_at_least_reported(
        self, make_client: MakeClient, file: Path
    ) -> None:
        client = make_client(extra_headers=(extra := {}))
        whole = client.export(file, MARCH)
        for share in range(5, 100, 9):
            extra["Sandbox-Faults"] = f"truncate={share / 100}"
            try:
                pull = client.export(file, MARCH)
            except TruncatedBody as error:
                assert error.evidence is not None
                continue
            assert pull.suspicions or pull.rows < whole.rows, share
            assert pull.rows <= whole.rows

    def test_an_export_that_is_too_slow_says_to_request_less(
        self, make_client: MakeClient, file: Path
    ) -> None:
        with pytest.raises(TooSlow, match="half the range"):
            make_client(extra_headers={"Sandbox-Faults": "error=0.001"}).export(file, Scope())

    def test_the_path_is_a_setting(self, make_client: MakeClient, file: Path) -> None:
        with pytest.raises(RequestRejected, match="export path"):
            make_client(export_path="v2/download").export(file, Scope())


class TestForms:
    @pytest.mark.parametrize(
        "text", ["id,t\r\n1,a\r\n2,b\r\n", "id,t\n1,a\n2,b\n", "\ufeffid,t\n1,a\n2,b\n",
                 '"id","t"\n"1","a\n""x"""\n2,b\n', "id,t\n\n1,a\n2,b\n\n"],
    )  # fmt: skip
    def test_line_ends_quotes_and_a_byte_order_mark_are_read(self, text: str, file: Path) -> None:
        pull = pull_of(text, file)
        assert (pull.rows, pull.suspicions) == (2, ())
        assert file.read_bytes() == text.encode()

    @pytest.mark.parametrize(
        ("text", "where"), [("id,t\n1,a\n2,", ""), ('id,t\n1,a\n2,"b', "inside quotes"),
                            ("id,t\n1,a\n2", "inside a record")],
    )  # fmt: skip
    def test_an_end_inside_a_record_is_a_truncated_body(
        self, text: str, where: str, file: Path
    ) -> None:
        if where:
            with pytest.raises(TruncatedBody, match=f"{where}, after 2 rows"):
                pull_of(text, file)
        else:
            assert pull_of(text, file).suspicions == ("the last line has no line end",)

    def test_a_short_last_line_with_a_line_end_is_reported(self, file: Path) -> None:
        pull = pull_of("id,t\n1,a\n2\n", file)
        assert pull.suspicions == ("the last record has too few fields",)

    @pytest.mark.parametrize(
        ("text", "kind"),
        [("", "empty"), ("\ufeff \n", "empty"), ("id,t\r\n", "bare_header"),
         ("id,t", "bare_header"), ('{"error": {}}', "json"), ("[1]", "json"),
         (" <html>", "html")],
    )  # fmt: skip
    def test_an_answer_that_is_no_catalog_is_named(self, text: str, kind: str, file: Path) -> None:
        with pytest.raises(NotData) as raised:
            pull_of(text, file)
        assert raised.value.kind == kind

    def test_a_header_without_rows_is_accepted_if_no_rows_are_expected(self, file: Path) -> None:
        assert pull_of("id,t\r\n", file, may_be_empty=True).rows == 0
