{% macro snapshot_get_time() %}'{{ var('observed_at') }}'::timestamptz{% endmacro %}
