"""Every question of the package on a published file, in an environment that has only the wheel.

    python smoke.py HOME

Started in a folder of the user. Prints the versions as JSON; any error ends it. Belongs
here: code that needs the package alone.
"""

import json
import sys
from pathlib import Path
from typing import Any


def main(home: str) -> dict[str, Any]:
    import almanac

    db = almanac.open(home)
    if any(name in sys.modules for name in ("pandas", "pyarrow", "scipy")):
        raise SystemExit("opening a file loads pandas, pyarrow or scipy")
    counts = answers(db)
    empty = [name for name, count in counts.items() if not count]
    if empty:
        raise SystemExit(f"these questions have no answer: {', '.join(empty)}")
    db.close()
    return {**versions(), "almanac": str(Path(almanac.__file__).parent), **counts}


def answers(db: Any) -> dict[str, int]:
    """Return the number of rows of each question."""
    import pandas as pd

    now = db.coverage().last_pull_at
    events = db.events(as_of=now)
    frame = events.df()
    event_id = str(frame["event_id"].iloc[0])
    coin = str(db.sql("SELECT slug FROM coins ORDER BY rank NULLS LAST LIMIT 1").rows()[0]["slug"])
    index = pd.date_range(now - pd.Timedelta(days=3), now, freq="1D")
    wanted = pd.DataFrame({"ts": index, "coin": coin})
    own = pd.DataFrame({"event_id": frame["event_id"].head(3)})
    db.register("mine", own)
    return {
        "events": len(frame),
        "arrow": events.arrow().num_rows,
        "rows": len(events.rows()),
        "sql": len(db.sql("SELECT * FROM events WHERE status = $status", status="scheduled")),
        "register": len(db.sql("SELECT * FROM events JOIN mine USING (event_id)").df()),
        "upcoming": len(db.upcoming(as_of=now, within="365d").df()),
        "changes": len(db.changes(now - pd.Timedelta(days=4)).df()),
        "history": len(db.history(event_id)),
        "first_release": len(db.first_release(event_id)),
        "vintage_dates": len(db.vintage_dates(event_id)),
        "known_before": len(db.known_before(lead="1d").df()),
        "coverage": len(db.coverage(now).windows.df()),
        "resolve": int(db.resolve(coin).slug == coin),
        "attach_known": len(db.attach_known(wanted)),
        "features": len(db.features(index, "1d", [coin])),
        "blackouts": len(db.blackouts(as_of=now)),
    }


def versions() -> dict[str, str]:
    from importlib.metadata import version

    found = {name: version(name) for name in ("duckdb", "pandas", "pyarrow")}
    return {"python": ".".join(map(str, sys.version_info[:3])), **found}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(sys.argv[1])) + "\n")
