"""Questions of the package on a published file, in an environment that has only the wheel.

    python smoke.py HOME

Prints the versions; any error ends it.
"""

import sys
from importlib.metadata import version

import almanac

db = almanac.open(sys.argv[1])
if any(name in sys.modules for name in ("pandas", "pyarrow", "scipy")):
    raise SystemExit("opening a file loads pandas, pyarrow or scipy")

import pandas as pd  # noqa: E402

now = db.coverage().last_pull_at
index = pd.date_range(now - pd.Timedelta(days=3), now, freq="1D")
db.register("mine", pd.DataFrame({"event_id": ["evt_0"]}))
answers = {
    "events": db.events(as_of=now).df(),
    "arrow": db.events(as_of=now).arrow(),
    "sql": db.sql("SELECT * FROM events WHERE status = $status", status="scheduled"),
    "register": db.sql("SELECT * FROM events JOIN mine USING (event_id)").df(),
    "changes": db.changes(db.coverage().first_pull_at).df(),
    "history": db.history("evt_0"),
    "vintage_dates": db.vintage_dates("evt_0"),
    "coverage": db.coverage(now).windows.df(),
    "attach_known": db.attach_known(pd.DataFrame({"ts": index, "coin": "coin-0"})),
    "features": db.features(index, "1d", ["coin-0"]),
}
empty = [name for name, answer in answers.items() if not len(answer)]
if empty:
    raise SystemExit(f"these questions have no answer: {', '.join(empty)}")
named = ("duckdb", "pandas", "pyarrow")
sys.stdout.write(", ".join(f"{name} {version(name)}" for name in named) + "\n")
