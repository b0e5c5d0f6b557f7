-- Grain: a macro that gives the reason for refusing one text, cut to 80 characters.
-- Run twice: the same macro again.
CREATE OR REPLACE TEMP MACRO almanac_met(field, expected, given) AS
    field || ': expected ' || expected || ', met ' || coalesce('''' || left(given, 80) || '''', 'nothing')
