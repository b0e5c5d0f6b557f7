"""Programs for people: command line, pages, report, mirror and webhook receiver.

cli/          the commands
web/          pages, report, calendar, MCP over HTTP; the mirror is in web/mirror
receiver.py   the webhook receiver
daily_run.py  the daily job of `almanac run`, in this process
"""
