-- Says which form the tables have; the number is VERSION of outbox.py. Twice: no change.
PRAGMA user_version = 1
