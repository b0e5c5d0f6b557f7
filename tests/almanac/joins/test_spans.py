"""Spans as steps agree with a look at every span."""

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from almanac.next_events import NONE, make_step_function

CODES, INSTANTS = st.integers(0, 2), st.integers(-3, 9)
SPANS = st.lists(st.tuples(CODES, INSTANTS, st.integers(1, 6)), max_size=12)


@settings(max_examples=200, deadline=None)
@given(spans=SPANS)
def test_a_step_has_the_first_span_that_holds_and_their_number(
    spans: list[tuple[int, int, int]],
) -> None:
    """Spans of a key are in order of precedence; they may overlap, touch and be equal."""
    rows = [(code, starts, starts + length) for code, starts, length in sorted(spans)]
    columns = zip(*rows, strict=True) if rows else ([], [], [])
    names = ("code", "starts", "ends")
    types = [pa.array(column, pa.int64()) for column in columns]
    steps = make_step_function(pa.table(dict(zip(names, types, strict=True))))
    points = list(zip(steps.keys.tolist(), steps.times.tolist(), strict=True))
    assert points == sorted(set(points)), "each key has one step for an instant"
    asked = [(code, at) for at in range(12, -6, -1) for code in (2, 0, 1, 3, NONE)]
    codes, instants = (np.array(column, np.int64) for column in zip(*asked, strict=True))
    places = steps.find_steps(codes, instants)
    for (code, at), place in zip(asked, places.tolist(), strict=True):
        holding = [n for n, (key, low, high) in enumerate(rows) if key == code and low <= at < high]
        found = (NONE, 0) if place == NONE else (steps.first[place], steps.counts[place])
        assert found == (min(holding, default=NONE), len(holding))
