-- Says whose file it is; the number is APPLICATION_ID of outbox.py. Twice: no change.
PRAGMA application_id = 1097617250
