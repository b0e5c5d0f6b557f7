"""Bodies as received, manifests, the journal, archived files."""
