-- name: view_score_history
-- Grain: one row per observed version that gave or changed the score or the band of its event.
SELECT
    event_id,
    title,
    version,
    old_impact,
    impact,
    old_impact_band,
    impact_band,
    known_from,
    lead(known_from) OVER (PARTITION BY event_id ORDER BY version) AS known_to,
    _almanac.days_until(date, date_precision, known_from) AS days_before
FROM (
    SELECT
        event_id, title, version, known_from, date, date_precision, impact, impact_band,
        lag(impact) OVER before AS old_impact,
        lag(impact_band) OVER before AS old_impact_band
    FROM event_versions
    WINDOW before AS (PARTITION BY event_id ORDER BY version)
)
WHERE impact IS DISTINCT FROM old_impact OR impact_band IS DISTINCT FROM old_impact_band
