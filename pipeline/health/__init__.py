"""The health of a home: freshness, gaps, deferred work, quota; and alerts."""
