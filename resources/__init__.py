"""Everything that calls the service, as plain classes.

    limits/     rate and quota: arithmetic, the ledger on disk, the limiter of a machine
    http/       the client: one request, one page, one list, one download; start at client.py
    ingest/     a feed pulled and landed as one batch, resumable; start at puller.py
    backfill/   a range of event dates, once: price, state, segments in parallel

Beside them: session.py, an open session; feeds.py, what a daily job and a poll pull; waits.py, the
line before a long wait; service_clock.py, the time of a service; errors.py, one tree of errors,
sorted by what the caller does next. Does not belong here: what records mean (warehouse/), Dagster's
assets (assets/), the environment (pipeline/settings.py). All instants are aware and UTC, all
durations seconds.
"""
