-- What the warehouse has: its tables, their columns, coins and categories.

-- name: table_names
-- Grain: one row per table and view of the publication.
-- Parameters: none. Run twice: the same rows.
SELECT table_name FROM duckdb_tables()
WHERE database_name = current_database() AND schema_name = 'main'
UNION ALL
SELECT view_name FROM duckdb_views()
WHERE database_name = current_database() AND schema_name = 'main' AND NOT internal
ORDER BY ALL

-- name: tables
-- Grain: one row per table, view and macro of the publication, in this order.
-- Parameters: none. Run twice: the same rows.
SELECT name, kind, description
FROM (
    SELECT table_name AS name, 'table' AS kind, comment AS description
    FROM duckdb_tables()
    WHERE database_name = current_database() AND schema_name = 'main'
    UNION ALL
    SELECT view_name, 'view', comment
    FROM duckdb_views()
    WHERE database_name = current_database() AND schema_name = 'main' AND NOT internal
    UNION ALL
    -- A macro with several forms has the comment at one of them; the form with all parameters counts.
    SELECT
        function_name || '('
            || array_to_string(arg_max(parameters, len(parameters)), ', ') || ')',
        'macro',
        max(coalesce(comment, description))
    FROM duckdb_functions()
    WHERE database_name = current_database() AND schema_name = 'main' AND NOT internal
    GROUP BY function_name
)
ORDER BY list_position(['table', 'view', 'macro'], kind), name

-- name: columns
-- Grain: one row per column of the table or view $name, in order.
-- Parameters: $name, in any case. Run twice: the same rows.
SELECT column_name AS "column", data_type AS type, comment AS description
FROM duckdb_columns()
WHERE database_name = current_database()
    AND schema_name = 'main'
    AND lower(table_name) = lower($name)
ORDER BY column_index

-- name: all_coins
-- Grain: one row per coin, as last seen, by rank; those without a rank last.
-- Parameters: none. Run twice: the same rows.
SELECT * FROM coins ORDER BY rank NULLS LAST, slug

-- name: universe
-- Grain: one row per coin that was listed at $at, by rank; with $top, ranks up to it.
-- Parameters: $at; $top, or NULL. Run twice: the same rows.
SELECT * FROM universe($at::TIMESTAMPTZ, top := $top::DOUBLE)

-- name: all_categories
-- Grain: one row per editorial category or category of any event, by name.
-- Parameters: none. Run twice: the same rows, but `upcoming` moves with the clock.
SELECT
    coalesce(s.category, c.name) AS category,
    coalesce(s.category_id, c.id) AS category_id,
    coalesce(s.events, 0) AS events,
    coalesce(s.upcoming, 0) AS upcoming,
    s.mean_impact
FROM category_stats AS s
FULL JOIN categories AS c ON c.name = s.category
ORDER BY ALL
