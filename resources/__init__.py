"""The code that talks to the service: HTTP client, rate and quota, pulls.

    limits/     rate and quota: arithmetic, the ledger on disk, the limiter of a machine
    http/       the client: one request, one page, one list, one download; start at client.py
    ingest/     a feed pulled and landed as one batch, resumable; start at puller.py

    session.py            an open session, and the feeds of a daily job and a poll
    calendar_backfill.py  a range of event dates, once, month by month
    scopes.py             dates and filters of a pull, and the requests for them
    request_log.py        notes about requests, and deferred pulls
    service_clock.py      the service's time
    credentials.py        address and key, and the removal of the key from texts
    errors.py             one tree of errors, sorted by the caller's next step

Does not belong here: the meaning of records (warehouse/), Dagster's assets (assets/), the
environment (pipeline/settings.py). All times are aware and UTC, all durations seconds.
"""
