-- The coins, from a file of JSON lines in the order of the coins list. Grain: one row a coin.
-- Parameter: $file. Fails when run twice.
CREATE TABLE coins AS
SELECT row_number() OVER () AS place, lower(name || chr(10) || symbol) AS search_text, *
FROM read_json(
    $file,
    format = 'newline_delimited',
    columns = {
        slug: 'VARCHAR', symbol: 'VARCHAR', name: 'VARCHAR', rank: 'INTEGER', tracked: 'BOOLEAN',
        iconUrl: 'VARCHAR', upcomingCount: 'INTEGER', majorCount: 'INTEGER', peakImpact: 'DOUBLE'
    }
)
