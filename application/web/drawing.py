"""Pictures of time as inline SVG, without script. Each mark has a title, and its values as data.

`axis`, `band` and `mark` draw elements; `draw_path` and `draw_heat` are pictures of them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

from markupsafe import Markup, escape

from almanac.core.text import cut_line, plain_line
from almanac.core.timestamps import utc_text
from application.web.pages import span_text

_DAY: Final = timedelta(days=1)
_STEPS: Final = (1, 2, 7, 14, 30, 91, 182, 365, 730, 1826, 3652)
"""Days between the ticks of an axis."""
_EARLIEST: Final = datetime(1900, 1, 1, tzinfo=UTC)
_LATEST: Final = datetime(2200, 1, 1, tzinfo=UTC)
"""The range of a scale: a mark beyond it is at the edge."""
WEEKS: Final = 13
LANE_DAYS: Final = 90
"""The days that lanes show before and after now."""
_LANES_MAX: Final = 16
_CELL: Final = 13
"""The width of a day of the heat strip, with its gap."""


@dataclass(frozen=True, slots=True)
class Scale:
    """A line of time over a length in pixels; `from_px` may lie after `to_px`."""

    starts: datetime
    ends: datetime
    from_px: float
    to_px: float

    def __call__(self, at: datetime) -> float:
        """Return the pixel of a time; one outside is at the edge."""
        share = (at - self.starts) / (self.ends - self.starts)
        return round(self.from_px + min(max(share, 0), 1) * (self.to_px - self.from_px), 1)

    def ticks(self, most: int) -> list[datetime]:
        days = (self.ends - self.starts) / _DAY
        step = next((each for each in _STEPS if days / each <= most), _STEPS[-1])
        first = datetime.combine(self.starts.astimezone(UTC).date(), datetime.min.time(), UTC)
        ticks = [first + n * step * _DAY for n in range(1, int(days / step) + 2)]
        return [tick for tick in ticks if tick <= self.ends]


def tag(name: str, content: str = "", **attributes: object) -> Markup:
    """Return an element; None leaves an attribute out, and each value is escaped."""
    given = "".join(
        f' {key.strip("_").replace("_", "-")}="{_write(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{name}{given}>{escape(content)}</{name}>")


def _write(value: object) -> str:
    if isinstance(value, int | float):
        return str(value)
    return escape(utc_text(value) if isinstance(value, datetime) else plain_line(str(value)))


def mark(name: str, title: str, **attributes: object) -> Markup:
    """Return an element with a title."""
    return tag(name, tag("title", cut_line(title, 300)), **attributes)


def band(x: float, y: float, x2: float, y2: float, title: str, **attributes: object) -> Markup:
    """Return a rectangle between two corners, at least a pixel thick."""
    top, left = min(y, y2), min(x, x2)
    size = {"width": max(round(abs(x2 - x), 1), 1), "height": max(round(abs(y2 - y), 1), 1.5)}
    return mark("rect", title, x=left, y=top, **size, **attributes)


def axis(scale: Scale, place: Callable[[float], Mapping[str, object]], most: int) -> Markup:
    """Return the labels of a scale; `place` gives the attributes of a label at a pixel."""
    form = "%d %b" if scale.ends - scale.starts < 400 * _DAY else "%b %Y"
    ticks = scale.ticks(most)
    return Markup("").join(tag("text", f"{at:{form}}", **place(scale(at))) for at in ticks)


def draw_path(
    versions: Sequence[Mapping[str, Any]],
    until: datetime,
    absences: Sequence[Mapping[str, Any]] = (),
    *,
    is_small: bool = False,
) -> Markup | None:
    """Return the path of an event's date: to the right the time at which it was known, upwards the
    date. Bands are possible times, a cross is where it left, the thin line is today.

    `versions` are those of one event that were known, oldest first. None if no date was known.
    """
    spans = _list_spans(versions)
    dated = [span for span in spans if span["latest"] is not None]
    if not dated:
        return None
    wide, high = (60, 16) if is_small else (640, 230)
    left, low, right, top = (1, high - 1, wide - 1, 1) if is_small else (80, high - 26, 606, 10)
    first = min(span["from"] for span in dated)
    length = max(until - first, timedelta(hours=1))
    x = Scale(first, until + length / 16, left, right)
    lowest = max(min(_find_start(span) for span in dated), _EARLIEST)
    highest = min(max(span["latest"] for span in dated), _LATEST)
    if not is_small:
        lowest, highest = min(lowest, until), max(highest, until)
    pad = max((highest - lowest) / 20, _DAY)
    y = Scale(lowest - pad, highest + pad, low, top)
    shapes = [_draw_span(span, x, y, is_small) for span in dated if not span["gone"]]
    crosses: list[tuple[datetime, Mapping[str, Any], str]] = [
        (span["from"], span, str(span["gone"])) for span in dated if span["gone"]
    ]
    crosses += [
        (row["changed_at"], _find_known(dated, row["changed_at"]), "missing")
        for row in absences
        if row["missing_since"] is not None
    ]
    size = 3 if is_small else 6
    for at, span, gone in crosses:
        cx, cy = min(max(x(at), left + size), right - size), y(_find_middle(span))
        path = (
            f"M{cx - size} {cy - size}l{2 * size} {2 * size}m0 {-2 * size}l{-2 * size} {2 * size}"
        )
        title = f"{gone}: known at {_tell(at)}"
        shapes.append(mark("path", title, d=path, class_="cross", data_gone=gone, data_from=at))
    dates = len({(span["earliest"], span["latest"], span["shown"]) for span in dated})
    name = f"Path of the date: {dates} date{'' if dates == 1 else 's'}, now {_tell_date(dated[-1])}"
    box = {"viewBox": f"0 0 {wide} {high}", "role": "img", "aria_label": cut_line(name, 300)}
    if is_small:
        return tag("svg", Markup("").join(shapes), class_="path", width=wide, height=high, **box)
    begin, end = max(first, lowest - pad), min(until, highest + pad)
    if begin < end:
        points = {"x1": x(begin), "y1": y(begin), "x2": x(end), "y2": y(end)}
        shapes.insert(
            0, mark("line", "Today: the date is the time of knowledge", class_="today", **points)
        )
    lines = [
        tag("line", class_="grid-line", x1=left, x2=right, y1=y(at), y2=y(at)) for at in y.ticks(6)
    ]
    lines.append(axis(y, lambda at: {"x": left - 6, "y": at + 4, "text_anchor": "end"}, 6))
    lines.append(axis(x, lambda at: {"x": at, "y": high - 6, "text_anchor": "middle"}, 8))
    return tag("svg", Markup("").join([*lines, *shapes]), class_="path large", **box)


def _list_spans(versions: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the times in which each date was known; `to` is None for the last one. Versions with
    one date and state are one."""
    spans: list[dict[str, Any]] = []
    for version in versions:
        gone = version["status"] if version["status"] != "scheduled" else None
        span = {
            "from": version["known_from"],
            "to": None,
            "earliest": version["earliest"],
            "latest": version["latest"],
            "precision": version["date_precision"],
            "shown": version["displayed_date_full"],
            "gone": gone,
        }
        if spans and spans[-1]["from"] == span["from"]:
            spans.pop()  # It was replaced at the same time, so it was never known.
            if spans:
                spans[-1]["to"] = None
        if spans and {**spans[-1], "from": span["from"]} == span:
            continue
        if spans:
            spans[-1]["to"] = span["from"]
        spans.append(span)
    return spans


def _find_start(span: Mapping[str, Any]) -> datetime:
    """Return the lower edge of a band; a deadline may fall from its first sighting on."""
    start: datetime = span["earliest"] or min(span["from"], span["latest"] - _DAY)
    return start


def _find_middle(span: Mapping[str, Any]) -> datetime:
    start = _find_start(span)
    middle: datetime = start + (span["latest"] - start) / 2
    return middle


def _find_known(spans: Sequence[Mapping[str, Any]], at: datetime) -> Mapping[str, Any]:
    return next((span for span in reversed(spans) if span["from"] <= at), spans[0])


def _draw_span(span: Mapping[str, Any], x: Scale, y: Scale, is_small: bool) -> Markup:
    """Return the mark of a date: from and to which time it was known, and its possible time."""
    is_exact = span["precision"] in ("instant", "day")
    values: dict[str, object] = {
        "class_": "exact" if is_exact else "period",
        "data_from": span["from"],
    }
    if not is_small:
        for name in ("to", "earliest", "latest"):
            values[f"data_{name}"] = span[name]
    low, high = y(_find_start(span)), y(span["latest"])
    if is_exact:  # A day is a line, also on a long axis.
        least = 2 if is_small else 4
        middle = (low + high) / 2
        low, high = max(low, middle + least / 2), min(high, middle - least / 2)
    title = f"{_tell_date(span)}: known from {_tell(span['from'])}"
    return band(x(span["from"]), low, x(span["to"] or x.ends), high, title, **values)


def _tell_date(span: Mapping[str, Any]) -> str:
    return cut_line(span_text(span["shown"] or "no date"), 100)


def _tell(at: datetime) -> str:
    return f"{at.astimezone(UTC):%d %b %Y %H:%M} UTC"


def draw_heat(
    rows: Sequence[Mapping[str, Any]],
    first: date,
    today: date,
    link: Callable[[date], str] | None,
) -> Markup | None:
    """Return the heat strip: a square a day, shaded by its events of high impact, and below, for
    each week, how many more may take place without an exact date. None without any event.

    `rows` are of `count_heat`. `link` gives the address of a day.
    """
    if not rows:
        return None
    days = {row["day"]: row["events"] for row in rows if row["day"] is not None}
    weeks = {row["week"]: row["events"] for row in rows if row["week"] is not None}
    most = max([4, *days.values()])
    shapes = []
    for number in range(WEEKS * 7):
        day = first + number * _DAY
        left, events = number * _CELL + number // 7 * 2, days.get(day, 0)
        if number == 0 or (day.day == 1 and number > 3):
            shapes.append(tag("text", f"{day:%b}" if number else f"{day:%d %b}", x=left, y=9))
        square = mark(
            "rect",
            f"{day:%a %d %b %Y}: {events} event{'' if events == 1 else 's'}",
            x=left,
            y=13,
            width=_CELL - 2,
            height=16,
            class_=f"h{-(-events * 4 // most)}{' today' * (day == today)}",
            data_day=day,
            data_events=events,
        )
        shapes.append(tag("a", square, href=link(day), tabindex=-1) if link else square)
    for number in range(WEEKS):
        week = first + number * 7 * _DAY
        if events := weeks.get(week, 0):
            left = number * (7 * _CELL + 2)
            title = f"Week of {week:%d %b %Y}: {events} without an exact date"
            line = {"x1": left, "x2": left + 7 * _CELL - 2, "y1": 35, "y2": 35}
            values = {"class_": "hatched", "data_week": week, "data_events": events}
            shapes.append(mark("line", title, **line, **values))
            shapes.append(tag("text", str(events), x=left, y=49))
    name = f"Events of high or critical impact in {WEEKS} weeks: {sum(days.values())} on a day"
    wide = WEEKS * (7 * _CELL + 2) - 4
    return tag(
        "svg",
        Markup("").join(shapes),
        class_="heat",
        viewBox=f"0 0 {wide} 51",
        role="group" if link else "img",
        aria_label=name,
    )


def draw_shares(shares: Sequence[tuple[str, float]], name: str) -> Markup:
    """Return bars of shares from 0 to 1, each with its label."""
    shapes = []
    for number, (label, share) in enumerate(shares):
        top, wide = number * 18, round(share * 200, 1)
        title = f"{label}: {share:.1%}"
        values = {"class_": label.lower(), "data_kind": label.lower(), "data_share": share}
        shapes.append(tag("text", label, x=84, y=top + 12, text_anchor="end"))
        shapes.append(band(90, top + 2, 90 + wide, top + 14, title, **values))
        shapes.append(tag("text", f"{share:.0%}", x=96 + wide, y=top + 12))
    box = {"viewBox": f"0 0 330 {len(shares) * 18}", "role": "img", "aria_label": name}
    return tag("svg", Markup("").join(shapes), class_="shares", **box)


def draw_lanes(
    events: Sequence[Mapping[str, Any]],
    former: Mapping[str, Sequence[Mapping[str, Any]]],
    now: datetime,
    link: Callable[[str], str] | None,
    prices: Sequence[tuple[datetime, float]] = (),
) -> Markup | None:
    """Return the lanes of a coin: from 90 days ago to 90 days ahead a mark per event, sized by
    its impact, a bar for a period, and faint marks at the dates that it had before; above, a line
    of its prices.

    `former` has the versions before of an event by its id. None without an event in these days.
    """
    x = Scale(now - LANE_DAYS * _DAY, now + LANE_DAYS * _DAY, 8, 896)
    shown = [
        each
        for each in events
        if each["latest"] is not None and each["latest"] > x.starts and each["may_begin"] < x.ends
    ]
    # Exact dates come first, so that long periods do not take their places.
    shown.sort(key=lambda each: (not each["is_exact"], each["may_begin"], each["event_id"]))
    lanes: list[list[tuple[float, float]]] = []
    shapes, drawn, first_lane = [], 0, 66 if prices else 26
    for event in shown:
        begin, end = x(event["may_begin"]), x(event["latest"])
        ghosts = sorted(
            {
                round((x(_find_start(each)) + x(each["latest"])) / 2, 1)
                for each in former.get(event["event_id"], ())
                if each["latest"] is not None
                and (each["earliest"], each["latest"]) != (event["earliest"], event["latest"])
            }
        )
        middle = (begin + end) / 2
        left, right = min([begin, *ghosts]) - 8, max([end, *ghosts]) + 8
        free = (
            n for n, taken in enumerate(lanes) if all(right <= a or b <= left for a, b in taken)
        )
        lane = next(free, len(lanes))
        if lane == _LANES_MAX:
            continue
        if lane == len(lanes):
            lanes.append([])
        lanes[lane].append((left, right))
        drawn += 1
        y = first_lane + lane * 18
        date_text = span_text(event["displayed_date_full"] or "no date")
        parts = (f"{event['title'] or 'without a title'}: {date_text}", event["gone"])
        title = ", ".join(filter(None, parts))
        for ghost in ghosts:
            shapes.append(tag("line", x1=ghost, x2=middle, y1=y, y2=y, class_="ghost"))
            shapes.append(tag("circle", cx=ghost, cy=y, r=3, class_="ghost", data_ghost=ghost))
        values: dict[str, object] = {
            "class_": f"s{event['impact_step'] or 0}{' gone' * bool(event['gone'])}",
            "data_event": event["event_id"],
            "data_impact": event["impact"],
            "data_from": event["may_begin"],
            "data_to": event["latest"],
        }
        if event["is_exact"] and end - begin < 12:
            radius = 3 + (event["impact_step"] or 0)
            shape = mark("circle", title, cx=middle, cy=y, r=radius, **values)
        else:
            shape = band(begin, y - 4, end, y + 4, title, rx=3, **values)
        shapes.append(tag("a", shape, href=link(event["event_id"])) if link else shape)
    if not shapes:
        return None
    high = first_lane + 10 + len(lanes) * 18
    grid = [
        tag("line", class_="grid-line", x1=x(at), x2=x(at), y1=14, y2=high) for at in x.ticks(8)
    ]
    grid.append(axis(x, lambda at: {"x": at, "y": 10, "text_anchor": "middle"}, 8))
    grid.append(mark("line", "Now", class_="today", x1=x(now), x2=x(now), y1=14, y2=high))
    if prices:
        grid.append(_draw_prices(prices, x))
    name = f"{drawn} of {len(shown)} events from 90 days ago to 90 days ahead"
    box = {"viewBox": f"0 0 920 {high}", "role": "group" if link else "img", "aria_label": name}
    return tag("svg", Markup("").join([*grid, *shapes]), class_="lanes", **box)


def _draw_prices(prices: Sequence[tuple[datetime, float]], x: Scale) -> Markup:
    """Return a line of prices, with the last one beside it."""
    closes = [close for _, close in prices]
    least, most = min(closes), max(closes)
    scale = 32 / ((most - least) or 1)
    points = [(x(at), round(50 - scale * (close - least), 1)) for at, close in prices]
    title = f"Price {closes[-1]:g} at {_tell(prices[-1][0])}; {least:g} to {most:g} in these days"
    line = mark(
        "polyline",
        title,
        class_="price",
        points=" ".join(f"{left},{top}" for left, top in points),
        data_times=" ".join(utc_text(at) for at, _ in prices),
        data_closes=" ".join(map(str, closes)),
    )
    return line + tag("text", f"{closes[-1]:,.6g}", x=points[-1][0] + 4, y=points[-1][1] + 4)
