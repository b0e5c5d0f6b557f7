-- The fields of an event in the order of their bits, as in warehouse/fields.py; and whether a
-- bitmask holds one.
CREATE OR REPLACE MACRO event_fields() AS [
    'slug', 'title', 'description', 'displayed_date', 'date', 'date_end', 'date_type',
    'is_estimated', 'categories', 'coins', 'impact', 'impact_band', 'impact_summary',
    'source_url', 'snapshot_url', 'last_verified_at', 'created_at', 'updated_at'
];
CREATE OR REPLACE MACRO has(fields, name) AS
    (fields >> (list_position(event_fields(), name) - 1)) & 1 = 1;
