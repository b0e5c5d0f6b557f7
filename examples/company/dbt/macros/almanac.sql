{# Macros of the published file find their tables by the search path. The warehouse comes first in it: a table of yours with the name
   of one of Almanac's must not take its place. dbt names its own tables in full, so it does not need the path. #}
{% macro events_as_of(instant, basis='observed') %}
    almanac.main.events_as_of({{ instant }}, basis := '{{ basis }}')
{% endmacro %}

{% macro find_macros_of_almanac() %}
    SET search_path = 'almanac.main,almanac._almanac,{{ target.database }}.{{ target.schema }}'
{% endmacro %}
