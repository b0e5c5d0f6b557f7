-- name: macro_coin_text
-- Grain: a macro of one value, the text of a coin as it is compared: in small letters, letters of full
-- width as those of ASCII, white space as single blanks inside and none around, without control
-- characters and others that are not seen.
-- Parameters: given, the text. Run twice: fails; it is made once in a new file.
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
-- Parameters: given, the text. Run twice: fails; it is made once in a new file.
CREATE MACRO _almanac.coin_kind(given) AS replace(
    regexp_extract(_almanac.coin_text(given), '^(slug|symbol|ticker|name):', 1), 'ticker', 'symbol'
)

-- name: macro_coin_label
-- Grain: a macro of one value, the text of a coin as it is compared, without what says what it is.
-- Parameters: given, the text. Run twice: fails; it is made once in a new file.
CREATE MACRO _almanac.coin_label(given) AS
    regexp_replace(_almanac.coin_text(given), '^(slug|symbol|ticker|name):\s*', '')
