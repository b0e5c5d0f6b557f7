"""The synthetic world, a pure function of seed and time. It imports no other package of this
project.

announcements.py  which events are announced in a month, as first published
lifecycle.py      their later changes, up to cancellation or withdrawal
roster.py         the coins and their ranks
dates.py          time units, and dates with their displayed words
categories.py     the editorial categories
version_lines.py  the versions as lines of JSON
"""
