-- The coins that a plan with a coverage shows, as last ranked. Grain: slug.
SELECT slug FROM coins_state WHERE rank <= $top AND missing_since IS NULL;
