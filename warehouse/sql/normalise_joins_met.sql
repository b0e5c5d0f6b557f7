-- Grain: one row: whether the lists were parted, and which other separators their elements hold.
-- Reads only.
SELECT
    coalesce(bool_or(len(categories) > 1), false) AS categories_parted,
    coalesce(bool_or(contains(array_to_string(categories, ' '), ';')), false),
    coalesce(bool_or(contains(array_to_string(categories, ' '), '|')), false),
    coalesce(bool_or(contains(array_to_string(categories, ' '), ',')), false),
    coalesce(bool_or(starts_with(categories[1], '[')), false),
    coalesce(bool_or(len(coins) > 1), false) AS coins_parted,
    coalesce(bool_or(contains(array_to_string(coins, ' '), ';')), false),
    coalesce(bool_or(contains(array_to_string(coins, ' '), '|')), false),
    coalesce(bool_or(contains(array_to_string(coins, ' '), ',')), false),
    coalesce(bool_or(starts_with(coins[1], '[')), false)
FROM normalised
