-- Whether a bitmask of fields holds one of them. The list is that of warehouse/fields.py.
CREATE OR REPLACE MACRO has(fields, name) AS
    (fields >> (list_position([
        'slug', 'title', 'description', 'displayed_date', 'date', 'date_end', 'date_type',
        'is_estimated', 'categories', 'coins', 'impact', 'impact_band', 'impact_summary',
        'source_url', 'snapshot_url', 'last_verified_at', 'created_at', 'updated_at'
    ], name) - 1)) & 1 = 1;
