-- Statements that read, one a line: each has an answer, also as CSV, JSON and Parquet.
SELECT 1
SELECT event_id, version, coins FROM event_versions WHERE version > 0 ORDER BY ALL
FROM events
VALUES (1), (2)
TABLE events
SELECT * FROM events_as_of(now())
SELECT * FROM events_as_of('2026-03-31')
SELECT * FROM upcoming_events
SELECT * FROM reschedules
WITH a AS (SELECT 1 AS copy, 2 AS insert) SELECT copy, insert FROM a
WITH a AS MATERIALIZED (SELECT 1 AS b) FROM a
WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 100) SELECT max(n) FROM t
SELECT sum(copy) FROM (SELECT 1 AS copy)
PIVOT events ON status USING count(*)
PIVOT (SELECT range % 3 AS a, range AS b FROM range(100)) ON a USING sum(b)
UNPIVOT (SELECT 1 AS a, 2 AS b) ON a, b
SELECT count(*) FROM range(1000000)
SELECT list(range) FROM range(1000)
SELECT * FROM query('SELECT 1 AS a')
SELECT * FROM query_table('events')
SELECT * FROM duckdb_tables()
SELECT 'it''s; not two' AS a -- a remark; here
SELECT now()::DATE, TIMESTAMPTZ '2026-01-01 12:00' AS noon
SELECT json_extract('{"a": 1}', '$.a')
SELECT title FROM events WHERE regexp_matches(title, '[A-Z]')
SELECT * FROM events ORDER BY random() LIMIT 1
SELECT count(*) OVER () FROM events
SELECT 'enable_logging', 'enable_logging(' AS b
SELECT a AS enable_logging, (a) AS query FROM (SELECT 1 AS a) -- enable_logging()
SELECT query FROM (SELECT 'FROM query(1)' AS query)
SELECT name, value FROM duckdb_settings() WHERE name = 'enable_logging'
