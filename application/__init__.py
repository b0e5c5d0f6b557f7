"""Programs for people: command line, pages, calendar, mirror, report and webhook receiver."""
