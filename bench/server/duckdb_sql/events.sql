-- The events, from a file of JSON lines. Grain: one row an event, by date and id.
-- Parameter: $file. Fails when run twice.
CREATE TABLE events AS
SELECT * REPLACE (list_transform(coins, lambda coin: coin.slug) AS coins)
FROM read_json(
    $file,
    format = 'newline_delimited',
    columns = {
        id: 'VARCHAR', slug: 'VARCHAR', title: 'VARCHAR', description: 'VARCHAR',
        displayedDate: 'VARCHAR', date: 'TIMESTAMP', dateEnd: 'TIMESTAMP', dateType: 'VARCHAR',
        isEstimated: 'BOOLEAN', categories: 'VARCHAR[]',
        coins: 'STRUCT(slug VARCHAR, symbol VARCHAR, name VARCHAR)[]', impact: 'DOUBLE',
        impactSummary: 'VARCHAR', sourceUrl: 'VARCHAR', snapshotUrl: 'VARCHAR',
        lastVerifiedAt: 'TIMESTAMP', createdAt: 'TIMESTAMP', updatedAt: 'TIMESTAMP'
    }
)
ORDER BY date, id
