"""Opening a published warehouse for reading: one file, one statement, its limits."""
