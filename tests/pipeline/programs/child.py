"""A stand-in for one of Dagster's programs, run by `pipeline.ui.attached`."""

import signal
import subprocess
import sys
import time
from pathlib import Path


def main(kind: str, *words: str) -> None:
    if kind == "prints":
        sys.stdout.write(f"{' '.join(words)}\n")
    elif kind == "exits":
        sys.exit(f"no database: {words[0]}")
    elif kind == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if kind in ("idle", "stubborn") and words:
        Path(words[0]).touch()
    if kind == "parent":
        child = subprocess.Popen([sys.executable, __file__, *words[1:]])
        Path(words[0]).write_text(str(child.pid))
    while kind != "prints":
        time.sleep(0.05)


if __name__ == "__main__":
    main(*sys.argv[1:])
