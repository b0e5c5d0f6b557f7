"""The doors: everything that reaches out of the process, as plain classes.

    client.py        CatalogClient: one method per endpoint; start here
    puller.py        Puller: a feed pulled and landed as one batch; start here to land
    landed.py        what became of a pull
    paged_pulls.py   a list, journaled page by page, landed, gone on with after a crash
    journaled_pages.py  the pages of one pull, kept and read back
    sweep_trace.py   where a sweep stands, told from its pages alone
    export_landing.py  the export, landed; cut by dates where it is too slow
    pull_scopes.py   what a pull covers: from bounds to a scope, and to requests
    pull_context.py  what every pull of a puller shares
    landing_room.py  the landing folder as a puller uses it
    service_times.py  the service's day, and since when content was true
    sweep.py         a list paged to its end, reconciled and reported
    pages.py         one page as it came, read just far enough to go on
    export_pull.py   the bulk export, streamed into a file and checked
    look_ups.py      answers of the endpoints that have no pages
    queries.py       what a list is asked: dates, filters, batches
    calls.py         one request with its retries
    verdicts.py      which error an answer is
    retries.py       how often and how long to wait
    bodies.py        bytes off the wire, decoded, bounded and checked
    headers.py       headers we read: dates, Retry-After
    transport.py     the innermost transport: key, limiter, count
    deadline.py      a bound on a whole request, headers included
    limiter.py       the limiter's protocol and a token bucket in memory
    shared_limiter.py  the limiter that every process of the machine shares
    allowance.py     what a key may still send, as a value: rate, burst, quota
    ledger.py        that value on disk, behind a lock
    errors.py        one tree of errors, sorted by what the caller does next

Belongs here: doors. Does not: what records mean (warehouse/), Dagster assets (assets/), the
environment (pipeline/settings.py). All instants are aware and UTC, all durations seconds.
"""
