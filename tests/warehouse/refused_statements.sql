-- Statements that would write, read, reach out, change the connection or exhaust the machine: one
-- a line. Each is refused or stopped. Names in <> are filled in: <body> a landed body, <partition> a
-- Parquet partition, <warehouse> the published file, <mine> a text of the user's, <csv>, <json> and
-- <parquet> files of the user's, <new> a path where nothing is, <pipe> a pipe, <http> a server
-- that counts its visitors, <folder> the folder of the home.

-- write
WITH x AS (COPY (SELECT 1) TO '<new>') SELECT 1
WITH x AS (COPY (SELECT 1) TO '<body>') SELECT 1
WITH x AS (COPY (SELECT 1) TO '<partition>') SELECT 1
WITH x AS (COPY (SELECT 1) TO '<mine>') SELECT 1
WITH x AS (COPY (SELECT 1) TO '<warehouse>') SELECT 1
WITH x AS (COPY (SELECT 1) TO '<warehouse>' (USE_TMP_FILE false)) SELECT 1
WITH x AS (COPY (SELECT 1) TO '<warehouse>' (FORMAT csv, USE_TMP_FILE false)) SELECT 1
WITH x AS (COPY (SELECT 1) TO '<warehouse>.wal' (FORMAT csv, USE_TMP_FILE false)) SELECT 1
WITH x AS (COPY (SELECT 1) TO '<warehouse>.wal.checkpoint' (FORMAT csv, USE_TMP_FILE false)) SELECT 1
WITH x AS (COPY (SELECT 1) TO '<warehouse>.wal.recovery' (FORMAT csv, USE_TMP_FILE false)) SELECT 1
WITH x AS (COPY (SELECT 1) TO '<body>' (USE_TMP_FILE false)) SELECT 1
WITH x AS (COPY (SELECT 1) TO '<partition>' (FORMAT parquet)) SELECT 1
WITH x AS (COPY (SELECT 1) TO '<new>' (FORMAT json)) SELECT 1
WITH x AS (COPY (SELECT 1 AS a) TO '<new>' (FORMAT parquet, PARTITION_BY a)) SELECT 1
WITH x AS (COPY (SELECT 1) TO '<new>' (PER_THREAD_OUTPUT)) SELECT 1
WITH x AS (COPY (SELECT 1) TO '<pipe>') SELECT 1
WITH x AS (COPY (SELECT 1) TO '/dev/stdout') SELECT 1
WITH x AS (COPY (SELECT 1) TO '/dev/null') SELECT 1
WITH x AS (COPY (SELECT 1) TO '/dev/fd/1') SELECT 1
WITH x AS (COPY (SELECT 1) TO '/proc/self/fd/1') SELECT 1
WITH x AS (COPY (SELECT 1) TO '<folder>/../outside.csv') SELECT 1
WITH x AS (COPY (SELECT 1) TO 'relative.csv') SELECT 1
WITH x AS (COPY (SELECT 1) TO '~/almanac-never.csv') SELECT 1
WITH x AS MATERIALIZED (COPY (SELECT 1) TO '<new>') FROM x
WITH x AS NOT MATERIALIZED (COPY (SELECT 1) TO '<new>') FROM x
WITH y AS (SELECT 1), x AS (COPY (FROM y) TO '<new>') FROM y
WITH x AS (WITH y AS (COPY (SELECT 1) TO '<new>') FROM y) FROM x
SELECT (WITH x AS (COPY (SELECT 1) TO '<new>') SELECT 1)
SELECT * FROM (WITH x AS (COPY (SELECT 1) TO '<new>') SELECT 1)
SELECT 1 UNION ALL (WITH x AS (COPY (SELECT 1) TO '<new>') SELECT 1)
EXPLAIN ANALYZE WITH x AS (COPY (SELECT 1) TO '<new>') SELECT 1
EXPLAIN (ANALYZE) WITH x AS (COPY (SELECT 1) TO '<new>') SELECT 1
PIVOT (WITH x AS (COPY (SELECT 1) TO '<new>') SELECT 1 AS a, 2 AS b) ON a USING sum(b)
SUMMARIZE WITH x AS (COPY (SELECT 1) TO '<new>') SELECT 1
DESCRIBE WITH x AS (COPY (SELECT 1) TO '<new>') SELECT * FROM read_text('<mine>')
WITH x AS (INSERT INTO categories VALUES ('a', 'b', NULL, NULL)) SELECT 1
WITH x AS (DELETE FROM events) SELECT 1
WITH x AS (UPDATE events SET title = 'wrong') SELECT 1
WITH x AS (INSERT INTO events SELECT * FROM events RETURNING *) FROM x
COPY (SELECT 1) TO '<new>'
COPY (SELECT 1) TO '<warehouse>' (FORMAT csv, USE_TMP_FILE false)
COPY (SELECT 1) TO '<warehouse>.wal' (FORMAT csv, USE_TMP_FILE false)
COPY (SELECT 1) TO '<body>' (FORMAT csv, USE_TMP_FILE false)
COPY (SELECT 1) TO '<partition>' (FORMAT parquet, USE_TMP_FILE false)
COPY (SELECT 1) TO '<mine>' (FORMAT csv, USE_TMP_FILE false)
COPY (SELECT 1) TO '<pipe>'
COPY (SELECT 1) TO '/dev/stdout'
COPY (SELECT 1) TO '/dev/stderr' (FORMAT csv)
COPY (SELECT 1 AS a, 2 AS b) TO '<new>' (FORMAT parquet, PARTITION_BY a)
COPY (SELECT 1) TO '<new>' (PER_THREAD_OUTPUT)
COPY (SELECT 1) TO '<folder>' (FORMAT parquet, PER_THREAD_OUTPUT, OVERWRITE)
COPY (SELECT 1 AS a, 2 AS b) TO '<folder>' (FORMAT csv, PARTITION_BY a, OVERWRITE)
COPY (SELECT 1 AS a, 2 AS b) TO '<folder>' (FORMAT csv, PARTITION_BY a, APPEND)
COPY (PIVOT events ON status USING count(*)) TO '<new>'
COPY events TO '<new>' (FORMAT parquet)
COPY events FROM '<csv>'
COPY FROM DATABASE memory TO almanac_1
EXPORT DATABASE '<new>'
EXPORT DATABASE '<folder>' (FORMAT parquet)
IMPORT DATABASE '<folder>'
ATTACH '<new>'
ATTACH '<new>' AS other (STORAGE_VERSION 'latest')
ATTACH '<warehouse>' AS other
ATTACH '<warehouse>' AS other (READ_WRITE)
ATTACH IF NOT EXISTS '<new>' AS other
ATTACH OR REPLACE '<new>' AS other
ATTACH 'file:<new>' AS other
CREATE TABLE mine AS SELECT 1
CREATE OR REPLACE VIEW upcoming_events AS SELECT 1
CREATE MACRO events_as_of(ts) AS TABLE SELECT 1
CREATE INDEX mine ON events (event_id)
CREATE SCHEMA mine
INSERT INTO events SELECT * FROM events
UPDATE events SET title = 'wrong'
DELETE FROM events
MERGE INTO events USING (SELECT 1 AS a) ON false WHEN NOT MATCHED THEN INSERT DEFAULT VALUES
TRUNCATE events
DROP TABLE events
ALTER TABLE events ADD COLUMN mine INTEGER
COMMENT ON TABLE events IS 'wrong'
VACUUM
CHECKPOINT
FORCE CHECKPOINT
CALL force_checkpoint()
CALL enable_logging(storage = 'file', storage_path = '<new>')
SELECT * FROM enable_logging(storage = 'file', storage_path = '<new>')
SELECT * FROM enable_logging('QueryLog', storage = 'file', storage_path = '<new>')
FROM enable_logging/* a comment */()
SELECT 1 FROM events, LATERAL system.main."Enable_Logging" ('QueryLog')
SELECT * FROM query('FROM enable_' || 'logging()')
SELECT * FROM query('FROM enable_logging()')
SELECT * FROM query('FROM query(''FROM enable_logging()'')')
SELECT * FROM json_execute_serialized_sql(json_serialize_sql('FROM enable_' || 'logging()'))
SELECT * FROM disable_logging()
FROM enable_profiling(save_location = '<new>.json', format = 'json')
SELECT * FROM query('COPY (SELECT 1) TO ''<new>''')
SELECT * FROM query('WITH x AS (COPY (SELECT 1) TO ''<new>'') SELECT 1')
CREATE PERSISTENT SECRET mine (TYPE http)
CREATE SECRET IN local_file (TYPE http)

-- read
SELECT content FROM read_text('/proc/self/environ')
SELECT content FROM read_blob('/proc/self/environ')
SELECT * FROM read_csv('/proc/self/environ')
SELECT * FROM '/proc/self/environ'
SELECT content FROM read_text('/proc/1/environ')
SELECT content FROM read_text('/proc/self/cmdline')
SELECT content FROM read_text('/proc/self/maps')
SELECT content FROM read_blob('/proc/self/mem')
SELECT content FROM read_text('/etc/passwd')
SELECT content FROM read_text('<mine>')
SELECT content FROM read_blob('<mine>')
SELECT content FROM read_text(['<mine>', '<csv>'])
SELECT content FROM read_text('<folder>/*')
SELECT content FROM read_text('<folder>/**')
SELECT size FROM read_blob('<body>')
SELECT last_modified FROM read_text('<mine>')
SELECT content FROM read_text('<warehouse>')
SELECT content FROM read_blob('<warehouse>')
SELECT content FROM read_blob('<warehouse>.wal')
SELECT * FROM '<mine>'
SELECT * FROM '<csv>'
SELECT * FROM '<json>'
SELECT * FROM '<parquet>'
SELECT * FROM "<csv>"
FROM '<csv>'
TABLE '<csv>'
SUMMARIZE '<csv>'
SUMMARIZE FROM '<parquet>'
DESCRIBE FROM '<csv>'
DESCRIBE SELECT * FROM '<parquet>'
SHOW FROM '<csv>'
PIVOT '<csv>' ON secret
PIVOT (FROM read_csv('<csv>')) ON secret
UNPIVOT '<csv>' ON COLUMNS(*)
EXPLAIN SELECT * FROM '<csv>'
EXPLAIN ANALYZE SELECT * FROM read_csv('<csv>')
SELECT * FROM read_csv('<csv>')
SELECT * FROM read_csv_auto('<csv>')
SELECT * FROM read_csv('<mine>', columns = {'a': 'VARCHAR'}, auto_detect = false)
SELECT * FROM sniff_csv('<csv>')
SELECT * FROM read_json('<json>')
SELECT * FROM read_json_auto('<json>')
SELECT * FROM read_json_objects('<json>')
SELECT * FROM read_json_objects_auto('<json>')
SELECT * FROM read_ndjson('<json>')
SELECT * FROM read_ndjson_auto('<json>')
SELECT * FROM read_ndjson_objects('<json>')
SELECT * FROM read_parquet('<parquet>')
SELECT * FROM parquet_scan('<parquet>')
SELECT * FROM read_parquet(['<partition>'])
SELECT * FROM parquet_metadata('<parquet>')
SELECT * FROM parquet_schema('<parquet>')
SELECT * FROM parquet_file_metadata('<parquet>')
SELECT * FROM parquet_kv_metadata('<parquet>')
SELECT * FROM parquet_bloom_probe('<parquet>', 'secret', 1)
SELECT * FROM glob('/*')
SELECT * FROM glob('<folder>/*')
SELECT * FROM glob('<folder>/**')
SELECT * FROM read_duckdb('<warehouse>')
SELECT * FROM query('FROM ''<csv>''')
SELECT * FROM query('SELECT content FROM read_text(''<mine>'')')
SELECT * FROM query_table('<csv>')
SELECT * FROM query_table(['<csv>', '<parquet>'])
SELECT (SELECT content FROM read_text('<mine>'))
SELECT * FROM events WHERE title IN (SELECT content FROM read_text('<mine>'))
SELECT * FROM events, LATERAL (SELECT content FROM read_text('<mine>'))
WITH x AS (SELECT content FROM read_text('<mine>')) FROM x
WITH RECURSIVE x AS (SELECT content FROM read_text('<mine>') UNION ALL FROM x WHERE false) FROM x
SELECT * FROM json_execute_serialized_sql(json_serialize_sql('SELECT content FROM read_text(''<mine>'')'))
SELECT getenv('ALMANAC_API_KEY')
SELECT getenv('PATH')
SELECT * FROM frame
SELECT * FROM secrets_of_the_caller
FROM connection
FROM relation
FROM sql
SELECT * FROM sqlite_scan('<mine>', 'a')
SELECT * FROM read_xlsx('<mine>')
SELECT * FROM st_read('<mine>')
SELECT * FROM iceberg_scan('<folder>')
SELECT * FROM delta_scan('<folder>')
SELECT content FROM read_text('<pipe>')
SELECT content FROM read_blob('/dev/zero')
SELECT content FROM read_text('/dev/stdin')
SELECT content FROM read_blob('/dev/urandom')
SELECT * FROM read_csv('/dev/fd/0')
SELECT * FROM arrow_scan(1, 2, 3)
SELECT * FROM pandas_scan(1)
SELECT * FROM python_map_function(1)
SELECT * FROM seq_scan('events')

-- reach
SELECT * FROM '<http>/a.csv'
SELECT * FROM read_csv('<http>/a.csv')
SELECT * FROM read_json('<http>/a.json')
SELECT * FROM read_parquet('<http>/a.parquet')
SELECT content FROM read_text('<http>/a')
SELECT content FROM read_blob('<http>/a')
SELECT * FROM read_parquet('s3://bucket/a.parquet')
SELECT * FROM 's3://bucket/a.parquet'
SELECT * FROM read_parquet('gcs://bucket/a.parquet')
SELECT * FROM read_parquet('az://box/a.parquet')
SELECT * FROM read_parquet('hf://datasets/a/b.parquet')
SELECT * FROM read_csv('https://127.0.0.1:1/a.csv')
SELECT * FROM glob('<http>/*')
WITH x AS (COPY (SELECT 1) TO '<http>/a.csv') SELECT 1
COPY (SELECT 1) TO 's3://bucket/a.csv'
ATTACH '<http>/a.duckdb'
ATTACH 's3://bucket/a.duckdb'
ATTACH 'host=127.0.0.1' AS other (TYPE postgres)
ATTACH 'md:'
SELECT * FROM postgres_scan('host=127.0.0.1', 'public', 'a')
SELECT * FROM mysql_query('a', 'SELECT 1')
SELECT http_get('<http>/a')
INSTALL httpfs
INSTALL httpfs FROM '<http>'
INSTALL '<mine>'
FORCE INSTALL spatial FROM community
LOAD httpfs
LOAD '<mine>'
UPDATE EXTENSIONS

-- change
SET enable_external_access = true
SET GLOBAL enable_external_access = true
SET lock_configuration = false
RESET lock_configuration
SET allowed_paths = ['<mine>']
SET allowed_directories = ['/']
SET memory_limit = '100GB'
RESET memory_limit
SET threads = 64
SET temp_directory = '<new>'
SET max_temp_directory_size = '1TB'
SET TimeZone = 'Asia/Tokyo'
SET python_enable_replacements = true
SET python_scan_all_frames = true
SET profiling_output = '<new>'
SET log_query_path = '<new>'
SET extension_directory = '<folder>'
SET secret_directory = '<folder>'
SET home_directory = '<folder>'
SET custom_user_agent = 'x'
SET autoinstall_known_extensions = true
SET disabled_filesystems = ''
SET search_path = 'memory'
PRAGMA enable_profiling
PRAGMA memory_limit = '100GB'
PRAGMA threads = 64
PRAGMA enable_logging
PRAGMA import_database('<folder>')
CALL enable_profiling()
CALL pragma_version()
USE memory
DETACH almanac_1
BEGIN
COMMIT
PREPARE a AS SELECT 1
EXECUTE a
DEALLOCATE a
SET VARIABLE a = 1
SELECT 1; SELECT 2
SELECT 1; COPY (SELECT 1) TO '<new>'
;

-- exhaust
SELECT count(*) FROM range(1000000000000)
SELECT * FROM range(1000000000000)
SELECT count(*) FROM range(100000000) a, range(100000000) b
SELECT sum(a.range * b.range * c.range) FROM range(10000) a, range(10000) b, range(10000) c
SELECT sum(random()) FROM events a, range(1000000) b, range(1000000) c
SELECT unnest(range(10000000000))
SELECT repeat('x', 1000000000000)
SELECT repeat('x', 1000000000)
SELECT repeat('x', 100000000 + range::INTEGER) FROM range(100000)
SELECT length(repeat('x', 100000000 + range::INTEGER)) FROM range(100000)
SELECT lpad('x', 2000000000, 'y')
SELECT printf('%2000000000d', 1)
SELECT format('{:>2000000000}', 'x')
SELECT bitstring('1', 2000000000)
SELECT md5(repeat('x', 1000000000))
SELECT translate(repeat('a', 1000000000), 'a', 'b')
SELECT regexp_replace(repeat('a', 100000000), 'a', repeat('b', 1000), 'g')
SELECT string_split(repeat('a,', 500000000), ',')
SELECT string_split_regex(repeat('a,', 100000000), ',')
SELECT array_to_string([1, 2, 3], repeat('x', 1000000000))
SELECT levenshtein(repeat('a', 1000000), repeat('b', 1000000))
SELECT damerau_levenshtein(repeat('a', 1000000), repeat('b', 1000000))
SELECT hamming(repeat('a', 1000000000), repeat('b', 1000000000))
WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT count(*) FROM t
WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) FROM t
WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n FROM t, range(10)) SELECT count(*) FROM t
WITH RECURSIVE t(s) AS (SELECT 'x' UNION ALL SELECT s || s FROM t) SELECT max(length(s)) FROM t
SELECT list(range) FROM range(10000000000)
SELECT string_agg(range::VARCHAR, ',') FROM range(10000000000)
SELECT json_group_array(range) FROM range(10000000000)
SELECT histogram(range) FROM range(100000000000)
SELECT quantile_cont(range, 0.5) FROM range(10000000000)
SELECT mode(repeat('x', 10000000) || range) FROM range(100000)
SELECT approx_quantile(range, 0.5) FROM range(1000000000000)
SELECT count(DISTINCT range) FROM range(10000000000)
SELECT * FROM range(10000000000) ORDER BY random()
SELECT row_number() OVER (ORDER BY range) FROM range(10000000000)
SELECT * FROM range(10000000000) a ASOF JOIN range(10000000000) b ON a.range >= b.range
SELECT range(10000000000)
SELECT len(range(1000000000))
SELECT list_sort(range(200000000))
SELECT list_distinct(range(100000000))
SELECT to_json(range(1000000000))
SELECT repeat('[', 100000000)::JSON
SELECT ('[' || repeat('1,', 200000000) || '1]')::INTEGER[]
SELECT count(*) FROM generate_series(TIMESTAMP '0001-01-01', TIMESTAMP '9999-01-01', INTERVAL 1 MICROSECOND)
SELECT generate_series(TIMESTAMP '0001-01-01', TIMESTAMP '9999-01-01', INTERVAL 1 MICROSECOND)
PIVOT (SELECT range AS a, range AS b FROM range(1000000)) ON a USING sum(b)
SUMMARIZE SELECT range, range * 2, range * 3 FROM range(10000000000)
EXPLAIN ANALYZE SELECT count(*) FROM range(1000000000000)
SELECT * FROM repeat_row(1, num_rows = 1000000000000)
SELECT * FROM query(repeat('SELECT 1 UNION ALL ', 100000) || 'SELECT 1')
