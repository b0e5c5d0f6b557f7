-- Categories as a look shows them. Grain: id. Twice is once.
MERGE INTO categories_state AS c
USING (
    SELECT * FROM seen_categories QUALIFY row_number() OVER (PARTITION BY id ORDER BY position DESC) = 1
) AS w
ON c.id = w.id
WHEN MATCHED THEN UPDATE SET
    name = w.name, extra = coalesce(w.extra, c.extra), last_seen_at = $observed_at
WHEN NOT MATCHED THEN INSERT (id, name, extra, first_seen_at, last_seen_at)
    VALUES (w.id, w.name, w.extra, $observed_at, $observed_at);
