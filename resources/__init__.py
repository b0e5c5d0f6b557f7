"""Everything that calls the service, as plain classes.

    limits/     rate and quota: arithmetic, the ledger on disk, the limiter of a machine
    http/       the client: one request, one page, one list, one download; start at client.py
    ingest/     a feed pulled and landed as one batch, resumable; start at puller.py
    backfill/   a range of event dates, once: price, state, segments in parallel
    inbox/      webhook deliveries between receipt and landing

    session.py        an open session, and the feeds of a daily job and a poll
    request_log.py    notes about requests
    waits.py          retries, and the report of each wait
    service_clock.py  the service's time
    errors.py         one tree of errors, sorted by the caller's next step

Does not belong here: the meaning of records (warehouse/), Dagster's assets (assets/), the
environment (pipeline/settings.py). All times are aware and UTC, all durations seconds.
"""
