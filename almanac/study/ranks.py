"""The generalised rank test of cumulated abnormal returns.

Kolari and Pynnönen (2011), GRANK-T. The whole window of a row is one "cumulated event day", ranked
among the standardised residuals of its estimation window. Ranks stand heavy tails, and the variance
over the bars of the mean rank has the correlation of rows that share calendar days.
"""

import numpy as np

from almanac.study.parametric import UNKNOWN, Verdict, student
from almanac.study.prices import Floats
from almanac.study.returns import Returns
from almanac.study.windows import Windows, residuals_of


def grank(returns: Returns, windows: Windows, scaled: Floats) -> Verdict:
    """Return GRANK-T; `scaled` are the standardised cumulated abnormal returns of the rows.

    With T bars in the estimation window, Z is the mean rank of the event over the root of the mean
    square of the mean ranks of all T + 1 bars, and Z √((T - 1) / (T - Z²)) is Student's t with
    T - 1 degrees. Ranks of rows with missing returns are of those they have.
    """
    rows, length = len(scaled), windows.spans.estimation
    if rows < 2 or not scaled.std(ddof=1) > 0:
        return Verdict("grank", UNKNOWN, length - 1, UNKNOWN)
    event = scaled / scaled.std(ddof=1)
    sums, counts, at_event = np.zeros(length), np.zeros(length), 0.0
    for part in residuals_of(returns, windows):
        has, mine = part.has, event[part.rows, None]
        standard = part.residuals / windows.sd[part.rows, None]
        among = has.sum(axis=1, keepdims=True)
        # Bars without a return are ranked last, and left out.
        ranks = _ranked(np.where(has, standard, np.inf))
        ranks = ranks + (standard > mine) + 0.5 * (standard == mine)
        sums += (np.where(has, ranks / (among + 2) - 0.5, 0.0)).sum(axis=0)
        counts += has.sum(axis=0)
        below = ((standard < mine) & has).sum(axis=1) + 0.5 * ((standard == mine) & has).sum(axis=1)
        at_event += float(((below + 1) / (among[:, 0] + 2) - 0.5).sum())
    means = np.divide(sums, counts, out=np.zeros(length), where=counts > 0)
    mean_at_event = at_event / rows
    squares = float((counts / rows * means**2).sum()) + mean_at_event**2
    spread = np.sqrt(squares / (length + 1))
    if not spread > 0:
        return Verdict("grank", UNKNOWN, length - 1, UNKNOWN)
    z = mean_at_event / spread
    inside = (length - 1) / (length - z**2) if z**2 < length else UNKNOWN
    return student("grank", float(z * np.sqrt(inside)), length - 1)


def _ranked(values: Floats) -> Floats:
    """Return the ranks in each row, from 1; equal values have their mean rank."""
    order = np.argsort(values, axis=1)
    in_order = np.take_along_axis(values, order, axis=1)
    is_tied = ((in_order[:, 1:] == in_order[:, :-1]) & np.isfinite(in_order[:, 1:])).any(axis=1)
    ranks = np.empty_like(values)
    np.put_along_axis(ranks, order, np.arange(1.0, values.shape[1] + 1)[None, :], axis=1)
    if is_tied.any():
        from scipy.stats import rankdata  # Its import takes a second.

        ranks[is_tied] = rankdata(values[is_tied], axis=1)
    return ranks
