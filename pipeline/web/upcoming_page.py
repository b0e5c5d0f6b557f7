"""The first page: the events to come, by day."""

from itertools import groupby

from pipeline.web.pages import SiteRequest, render

_WITHIN = "30d"


def show_upcoming(request: SiteRequest) -> str:
    """Return the page of the events that were to come at the time of knowledge."""
    events = request.database.upcoming(
        coins=request.text("coin"),
        within=request.text("within") or _WITHIN,
        as_of=request.as_of,
        categories=request.text("category"),
    ).rows()
    days = [(day, list(found)) for day, found in groupby(events, key=_day)]
    return render("upcoming.html", request, title="Upcoming events", days=days, count=len(events))


def _day(event: dict[str, object]) -> str:
    return str(event["earliest"] or event["latest"])[:10]
