{% snapshot events %}
{{ config(strategy='check', check_cols=var('compared'), unique_key='event_id', hard_deletes='invalidate') }}
{{ var('typed') }}
{% endsnapshot %}
