-- The lease of the one writer, and the fence that refuses commits of any other.
-- Flow: create_lease > read_format; take_lease > renew_lease > release_lease; read_lease.

-- name: read_format
-- Grain: one row. The comment of the schema; NULL if there is no schema.
SELECT obj_description(to_regnamespace('almanac'), 'pg_namespace')

-- name: find_lease
-- Grain: one row. NULL if the table does not exist.
SELECT to_regclass('almanac.writer_lease')::text

-- name: create_lease
-- One transaction; the lock keeps two programs from creating the schema at the same time.
SELECT pg_advisory_xact_lock(hashtext('almanac'));

CREATE SCHEMA IF NOT EXISTS almanac;

CREATE TABLE IF NOT EXISTS almanac.writer_lease (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    epoch bigint NOT NULL,
    holder text NOT NULL,
    place text NOT NULL,
    taken_at timestamptz NOT NULL,
    until timestamptz NOT NULL,
    is_released boolean NOT NULL
);

INSERT INTO almanac.writer_lease (epoch, holder, place, taken_at, until, is_released)
VALUES (0, '', '', clock_timestamp(), clock_timestamp(), true)
ON CONFLICT DO NOTHING;

-- The share lock makes a takeover wait until the transaction of the commit has ended.
CREATE OR REPLACE FUNCTION almanac.refuse_stale_writer() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    lease almanac.writer_lease;
    epoch text := current_setting('almanac.epoch', true);
BEGIN
    SELECT * INTO STRICT lease FROM almanac.writer_lease FOR SHARE;
    IF epoch IS NULL OR epoch = '' THEN
        RAISE EXCEPTION USING
            ERRCODE = 'AL001',
            MESSAGE = 'this session has no lease, and only the writer with the lease may write here';
    ELSIF epoch <> lease.epoch::text THEN
        RAISE EXCEPTION USING
            ERRCODE = 'AL001',
            MESSAGE = format(
                'the lease of this writer has epoch %s, and %s took over with epoch %s',
                epoch, lease.holder, lease.epoch
            );
    ELSIF lease.until <= clock_timestamp() THEN
        RAISE EXCEPTION USING
            ERRCODE = 'AL001',
            MESSAGE = format('the lease of this writer (epoch %s) ended at %s', epoch, lease.until);
    END IF;
    RETURN NULL;
END
$$;

-- name: note_format
-- Placeholders: format.
COMMENT ON SCHEMA almanac IS {format}

-- name: take_lease
-- Grain: one row if the lease is free: the new epoch. A writer that holds the lock of the same
-- place (a home folder on a running machine) takes over without a wait: no other process has it.
UPDATE almanac.writer_lease SET
    epoch = epoch + 1,
    holder = %(holder)s,
    place = %(place)s,
    taken_at = clock_timestamp(),
    until = clock_timestamp() + make_interval(secs => %(lease_s)s),
    is_released = false
WHERE until <= clock_timestamp() OR is_released OR place = %(place)s
RETURNING epoch

-- name: renew_lease
-- Grain: one row if this writer still has the lease. A lease that ended is renewed if nobody took
-- over: the epoch is the same, so no other writer has committed.
UPDATE almanac.writer_lease
SET until = clock_timestamp() + make_interval(secs => %(lease_s)s)
WHERE epoch = %(epoch)s AND NOT is_released
RETURNING epoch

-- name: release_lease
UPDATE almanac.writer_lease SET until = clock_timestamp(), is_released = true
WHERE epoch = %(epoch)s

-- name: read_lease
-- Grain: one row.
SELECT
    epoch,
    holder,
    taken_at,
    until,
    NOT is_released AND until > clock_timestamp() AS is_held,
    is_released
FROM almanac.writer_lease

-- name: find_unfenced
-- Grain: a table that exists and has no enabled fence. `tables` has their names.
SELECT name
FROM unnest(%(tables)s::text[]) AS name
WHERE to_regclass(name) IS NOT NULL AND NOT EXISTS (
    SELECT FROM pg_trigger
    WHERE tgrelid = to_regclass(name) AND tgname = 'refuse_stale_writer' AND tgenabled <> 'D'
)

-- name: fence_table
-- Placeholders: table.
CREATE OR REPLACE TRIGGER refuse_stale_writer
BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON {table}
FOR EACH STATEMENT EXECUTE FUNCTION almanac.refuse_stale_writer()

-- name: check_privileges
-- Grain: one row. What this user may do, and whether the session has its options.
SELECT
    current_setting('almanac.epoch', true) = '0' AS has_options,
    CASE WHEN to_regclass('almanac.writer_lease') IS NULL
        THEN has_database_privilege(current_database(), 'CREATE')
        ELSE has_table_privilege('almanac.writer_lease', 'SELECT')
            AND has_table_privilege('almanac.writer_lease', 'UPDATE')
    END AS may_lease,
    CASE WHEN to_regclass('iceberg_tables') IS NULL
        THEN coalesce(has_schema_privilege(current_schema(), 'CREATE'), false)
        ELSE pg_has_role(relowner, 'USAGE')
    END AS may_commit,
    current_setting('server_version_num')::integer / 10000 AS version
FROM (SELECT) AS nothing
LEFT JOIN pg_class ON pg_class.oid = to_regclass('iceberg_tables')
