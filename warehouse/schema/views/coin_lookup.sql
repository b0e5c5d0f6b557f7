-- name: macro_coin_text
-- Grain: a macro of one value, the text of a coin as it is compared: in small letters, letters of full
-- width as those of ASCII, white space as single blanks inside and none around, without control
-- characters and others that are not seen.
-- Parameters: given, the text.
CREATE MACRO _almanac.coin_text(given) AS CASE
    WHEN regexp_full_match(given, '[!-~]+') THEN lower(given)
    ELSE lower(trim(regexp_replace(regexp_replace(
        translate(
            given,
            '！＂＃＄％＆＇（）＊＋，－．／０１２３４５６７８９：；＜＝＞？＠ＡＢＣＤＥＦＧＨＩＪＫＬＭＮＯＰＱＲＳＴＵＶＷＸＹＺ'
            || '［＼］＾＿｀ａｂｃｄｅｆｇｈｉｊｋｌｍｎｏｐｑｒｓｔｕｖｗｘｙｚ｛｜｝～',
            '!"#$%&''()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\]^_`abcdefghijklmnopqrstuvwxyz{|}~'
        ),
        '[\t-\r\x1c-\x1f\x{85}\p{Z}\x{2800}]+', ' ', 'g'
    ), '[\p{Cc}\p{Cf}\x{34f}\x{115f}\x{1160}\x{17b4}\x{17b5}\x{180b}-\x{180f}\x{3164}\x{fe00}-\x{fe0f}\x{ffa0}]+', '', 'g')))
END

-- name: macro_coin_kind
-- Grain: a macro of one value, what the text of a coin says that it is: slug, symbol or name; else empty.
-- Parameters: given, the text.
CREATE MACRO _almanac.coin_kind(given) AS replace(
    regexp_extract(_almanac.coin_text(given), '^(slug|symbol|ticker|name):', 1), 'ticker', 'symbol'
)

-- name: macro_coin_label
-- Grain: a macro of one value, the text of a coin as it is compared, without what says what it is.
-- Parameters: given, the text.
CREATE MACRO _almanac.coin_label(given) AS
    regexp_replace(_almanac.coin_text(given), '^(slug|symbol|ticker|name):\s*', '')

-- name: macro_coin_match
-- Grain: a macro of one value, what the text of a coin is to a coin: slug, symbol or name; prefix, if one
-- of them begins with it; NULL if none does.
-- Parameters: wanted, the text; slug, symbol, name, of the coin.
CREATE MACRO _almanac.coin_match(wanted, slug, symbol, name) AS CASE
    WHEN coalesce(_almanac.coin_label(wanted), '') = '' THEN NULL
    WHEN _almanac.coin_text(slug) = _almanac.coin_label(wanted)
        AND _almanac.coin_kind(wanted) IN ('', 'slug') THEN 'slug'
    WHEN _almanac.coin_text(symbol) = _almanac.coin_label(wanted)
        AND _almanac.coin_kind(wanted) IN ('', 'symbol') THEN 'symbol'
    WHEN _almanac.coin_text(name) = _almanac.coin_label(wanted)
        AND _almanac.coin_kind(wanted) IN ('', 'name') THEN 'name'
    WHEN _almanac.coin_kind(wanted) = '' AND (
        starts_with(_almanac.coin_text(slug), _almanac.coin_label(wanted))
        OR starts_with(_almanac.coin_text(symbol), _almanac.coin_label(wanted))
        OR starts_with(_almanac.coin_text(name), _almanac.coin_label(wanted))
    ) THEN 'prefix'
END

-- name: macro_coin_lookup
-- Grain: one row per coin that a text names, the best match first: its slug, symbol or name in any
-- case, then what only begins with the text; the highest rank first among equals. An error if there is
-- none.
-- Parameters: wanted, the text; `slug:`, `symbol:` or `name:` before it says what it is.
-- The check of the text returns no row. Its columns are no constants, so that no filter of the caller can
-- skip it.
CREATE MACRO coin_lookup(wanted) AS TABLE
SELECT
    coin, symbol, name, rank, tracked, matched_by,
    count(*) FILTER (WHERE matched_by <> 'prefix') OVER () > 1 AS is_ambiguous
FROM (
    SELECT
        slug AS coin, symbol, name, rank, tracked,
        _almanac.coin_match(wanted, slug, symbol, name) AS matched_by
    FROM coins
)
WHERE matched_by IS NOT NULL
UNION ALL
SELECT
    CASE WHEN is_wrong THEN label END,
    CASE WHEN is_wrong THEN label END,
    CASE WHEN is_wrong THEN label END,
    CASE WHEN is_wrong THEN rank END,
    is_wrong,
    CASE WHEN is_wrong THEN label END,
    is_wrong
FROM (
    SELECT
    CASE WHEN count(_almanac.coin_match(wanted, slug, symbol, name)) > 0 THEN false ELSE error(
        'coin_lookup: no coin has a slug, symbol or name that is, or begins with, '
        || coalesce(chr(39) || wanted || chr(39), 'NULL')
        || CASE WHEN regexp_matches(wanted, '[^ -~]')
            THEN ' (percent-encoded: ' || url_encode(wanted) || ')' ELSE '' END
    ) END AS is_wrong,
    min(slug) AS label,
    min(rank) AS rank
    FROM coins
)
WHERE is_wrong
ORDER BY list_position(['slug', 'symbol', 'name', 'prefix'], matched_by), rank NULLS LAST, coin
