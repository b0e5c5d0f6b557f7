"""A back-test around token unlocks: `python unlocks.py HOME`, over a home of some weeks.

It holds a coin on the day of an unlock whose exact date was known ten days before. The prices are
random, with an effect of 2 % on the days on which unlocks took place; put your own in their place.
The second strategy takes the dates from today's table, and the audit finds what was not yet known.
"""

import sys

import numpy as np
import pandas as pd
import vectorbt as vbt

import almanac

EFFECT = 0.02
LEAD = pd.Timedelta(days=10)
CATEGORY = "Token Unlock"


def make_opens(unlocks: pd.DataFrame, days: pd.DatetimeIndex, coins: list[str]) -> pd.DataFrame:
    """Return the open of each day, by coin; the day of an unlock gains 2 % to the next open."""
    noise = np.random.default_rng(1).normal(0, 0.005, (len(days), len(coins)))
    returns = pd.DataFrame(noise, days, coins)
    for day, coin in unlocks[["day", "coin"]].itertuples(index=False):
        if day in returns.index and coin in returns:
            returns.loc[day, coin] += EFFECT
    return 100 * returns.cumsum().shift(1, fill_value=0).pipe(np.exp)


def hold(rows: pd.DataFrame, opens: pd.DataFrame) -> vbt.Portfolio:
    """Hold the coins of each day's rows in equal parts, from the open of the day to the next."""
    weights = pd.DataFrame(0.0, opens.index, opens.columns)
    for day, coins in rows.groupby("day")["coin"]:
        chosen = coins.unique()
        weights.loc[day, chosen] = 1 / len(chosen)
    return vbt.Portfolio.from_orders(
        opens, weights, size_type="targetpercent", group_by=True, cash_sharing=True, freq="1D"
    )


def main(home: str) -> None:
    with almanac.open(home, coins_are="slug") as db:
        observed = db.coverage()
        days = pd.date_range(
            observed.first_pull_at, observed.last_pull_at, freq="D", normalize=True
        )
        days = days[11:]
        today = db.events(categories=CATEGORY).df()
        today = today[today["date_precision"].isin(["instant", "day"])]
        today = today[today["status"] == "scheduled"].explode("coins")
        today = today.rename(columns={"coins": "coin"}).assign(day=today["earliest"].dt.floor("D"))
        today = today[today["day"].isin(days)]
        coins = sorted(today["coin"].dropna().unique())
        opens = make_opens(today, days, coins)

        rows = pd.DataFrame([(day - LEAD, coin) for day in days for coin in coins])
        known = db.attach_known(
            rows.set_axis(["ts", "coin"], axis=1), horizon="11d", categories=CATEGORY
        )
        known = known.assign(day=known["next_event_date"].dt.floor("D"))
        known = known[known["day"] == known["ts"] + LEAD]
        known = known.rename(columns={"next_event_id": "event_id", "next_event_date": "date"})
        ahead = today.assign(ts=today["day"] - LEAD)
        for name, orders in (("as known", known), ("look-ahead", ahead)):
            value = hold(orders, opens).value()
            print(f"{name}: {len(orders)} orders, {value.iloc[0]:.0f} to {value.iloc[-1]:.1f}")
            print(db.audit(orders[["ts", "event_id", "date"]], decided_at="ts"))


if __name__ == "__main__":
    main(sys.argv[1])
