"""Events as an iCalendar feed (RFC 5545)."""
