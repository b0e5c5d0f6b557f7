-- Grain: a macro of one text. Gives it in canonical form: LF line ends, no white space (ASCII)
-- around it, NULL for nothing. The guard costs less than to copy every ordinary text; a text
-- below '!' is empty or begins with white space.
-- Run twice: the same macro again.
CREATE OR REPLACE TEMP MACRO almanac_clean(given) AS
CASE
    WHEN given IS NULL THEN NULL
    WHEN given >= '!' AND given[-1] > ' ' AND NOT contains(given, chr(13)) THEN given
    ELSE nullif(
        trim(
            replace(replace(given, chr(13) || chr(10), chr(10)), chr(13), chr(10)),
            ' ' || chr(9) || chr(10) || chr(11) || chr(12)
        ),
        ''
    )
END
