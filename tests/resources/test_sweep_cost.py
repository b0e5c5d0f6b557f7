"""What a list sweep of the whole catalog costs, by the service's own count."""

import sys
from math import ceil
from pathlib import Path

from catalog.contract import decisions
from catalog.contract.plans import ELITE
from catalog.contract.windows import plan_window
from catalog.sandbox.service import Sandbox
from tests.resources.conftest import Door
from tests.resources.pulls import AT, puller_of

BAR = 1.02


def test_a_sweep_of_the_whole_catalog_costs_no_more_than_two_percent_over_its_pages(
    almanac_sandbox: Sandbox, door: Door, tmp_path: Path
) -> None:
    key = almanac_sandbox.new_key("enterprise", rate_per_s=1e6, burst=1_000_000)
    client, window = door(key), plan_window(ELITE, AT)
    puller = puller_of(client, tmp_path, plan=ELITE)
    before = client.usage().used
    landed = puller.events(window.lower, window.upper)
    after = client.usage().used
    assert before is not None
    assert after is not None
    # The second question for the usage is in its own answer.
    counted = after - before - 1
    total = landed.manifest.rows_claimed
    assert landed.manifest.complete
    assert total == landed.rows > 10_000
    pages = ceil(total / decisions.EVENTS_LIMIT_MAX)
    assert counted == landed.requests == landed.manifest.requests
    assert pages <= counted <= BAR * pages
    sys.stdout.write(f"\n{total:,} events in {counted} requests counted; {pages} pages\n")
