-- How many rejected rows don't say whose they are: without what names them, or cut before it.
-- Grain: one row. Parameters: $naming, the field that names a row.
SELECT count(*)
FROM rejected
WHERE starts_with(reason, $naming || ':') OR starts_with(reason, 'expected an object')
    OR contains(reason, '(raw text cut)');
