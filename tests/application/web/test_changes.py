import re
from dataclasses import replace
from pathlib import Path

from tests.application.web.handmade_site import DAY, FIRST, PULLS, serve_pages
from tests.warehouse.answers.handmade import Known


def make_move(event_id: str, days: int, *, title: str = "A move") -> list[Known]:
    """Return an event that is announced at the first pull, and moves two pulls later."""
    shown = {"event_id": event_id, "title": title, "categories": ("Airdrop",), "impact": 6.0}
    first = Known(
        **shown,  # type: ignore[arg-type]
        known_from=PULLS[0],
        change_kinds=("created",),
        created_at=PULLS[0],
        displayed_date="20 Mar 2026",
        date=FIRST.replace(hour=0) + 19 * DAY,
        coins=("bitcoin",),
    )
    moved = replace(
        first,
        version=2,
        known_from=PULLS[2],
        change_kinds=("rescheduled",),
        changed_fields=("date", "displayed_date"),
        created_at=None,
        displayed_date="later",
        date=FIRST.replace(hour=0) + (19 + days) * DAY,
    )
    return [first, moved]


def test_move_has_its_old_and_new_date_and_its_days(tmp_path: Path) -> None:
    with serve_pages(tmp_path, make_move("evt_1", 5)) as client:
        page = client.get("/changes?kind=rescheduled").text
        assert "<bdi>20 Mar 2026</bdi></del>" in page
        assert "later, by 5 days" in page
        assert client.get("/changes?kind=rescheduled&category=airdrop").text.count("<tr data") == 1
        assert client.get("/changes?kind=rescheduled&impact=High").text.count("<tr data") == 1
        assert client.get("/changes?kind=rescheduled&impact=7").text.count("<tr data") == 0


def test_plots_have_the_numbers_as_a_table_and_nothing_of_later(tmp_path: Path) -> None:
    versions = make_move("evt_1", 5) + make_move("evt_2", -3)
    with serve_pages(tmp_path, versions) as client:
        page = client.get("/changes").text
        assert page.count('<svg role="img"') == 2
        (row,) = re.findall(r'<th scope="row"><bdi>Airdrop</bdi></th>(.*?)</tr>', page)
        assert re.findall(r"[\d,]+(?=</td>)", row) == ["1", "1", "0", "0", "2"]
        then = client.get("/changes", params={"as_of": PULLS[1].isoformat()}).text
        assert "<bdi>20 Mar 2026</bdi></del>" not in then
        assert "Which categories" not in then
        assert "How long before its date" in then
        assert re.search(r"<bdi>15–30</bdi></th><td class=\"n\">2</td>", then)


def test_kinds_with_many_changes_are_paged_and_say_so(tmp_path: Path) -> None:
    versions = [each for number in range(60) for each in make_move(f"evt_{number}", 1)]
    with serve_pages(tmp_path, versions) as client:
        page = client.get("/changes").text
        assert "The newest 10." in page
        assert "Show all 60" in page
        pages = [client.get(f"/changes?kind=rescheduled&page={n}").text for n in (1, 2)]
        assert [text.count("<tr data-version") for text in pages] == [50, 10]
        assert "51 to 60 of 60" in pages[1]
        assert client.get("/changes?kind=rescheduled&page=3").status_code == 400


def test_wrong_filter_is_refused_with_the_reason(tmp_path: Path) -> None:
    wrong = ("kind=nothing", "last=1y", "since=2999-01-01", "until=2999-01-01", "impact=11")
    with serve_pages(tmp_path, make_move("evt_1", 1)) as client:
        for query in wrong:
            answer = client.get(f"/changes?{query}")
            assert (answer.status_code, 'role="alert"' in answer.text) == (400, True), query
