-- Grain: a macro of one cell and the separator that joins its list. Gives the list as a set:
-- trimmed, without empty elements, distinct, sorted; NULL becomes the empty list. One and two
-- elements, the usual case, are spared the general way.
-- Run twice: the same macro again.
CREATE OR REPLACE TEMP MACRO almanac_list(cell, joint) AS
CASE
    WHEN almanac_clean(cell) IS NULL THEN []::VARCHAR[]
    WHEN NOT contains(cell, joint) THEN [almanac_clean(cell)]
    ELSE list_sort(
        list_distinct(
            list_filter(
                list_transform(string_split(cell, joint), lambda one: almanac_clean(one)),
                lambda one: one IS NOT NULL
            )
        )
    )
END
