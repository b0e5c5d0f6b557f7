-- The fields of an event in the order of their bits, as in warehouse/fields.py; whether a bitmask
-- holds one; and what the service says of itself as far as it can be believed: an instant more than
-- a day after it was observed is unknown, else one wrong year would outrank all that is to come.
CREATE OR REPLACE MACRO event_fields() AS [
    'slug', 'title', 'description', 'displayed_date', 'date', 'date_end', 'date_type',
    'is_estimated', 'categories', 'coins', 'impact', 'impact_band', 'impact_summary',
    'source_url', 'snapshot_url', 'last_verified_at', 'created_at', 'updated_at'
];
CREATE OR REPLACE MACRO has(fields, name) AS
    (fields >> (list_position(event_fields(), name) - 1)) & 1 = 1;
CREATE OR REPLACE MACRO believed(instant, observed_at) AS
    if(instant <= observed_at + INTERVAL 1 DAY, instant, NULL);
