MODEL (
  name history.events,
  kind SCD_TYPE_2_BY_COLUMN (
    unique_key event_id,
    columns [COMPARED],
    valid_from_name known_from,
    valid_to_name known_to,
    time_data_type TIMESTAMPTZ,
    execution_time_as_valid_from true,
    invalidate_hard_deletes true
  ),
  cron '@daily'
);
