"""The page of one event: what is known, and its history."""

from pipeline.web.pages import SiteRequest, render


def show_event(request: SiteRequest) -> str:
    """Return the page of an event, with the versions that were known at the time of knowledge."""
    versions = [
        row
        for row in request.database.history(request.parameters["event_id"]).rows()
        if row["known_from"] <= request.moment
    ]
    event = versions[-1]
    return render("event.html", request, title=event["title"], event=event, versions=versions)
