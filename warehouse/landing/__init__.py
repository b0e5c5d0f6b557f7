"""Bodies as they came, manifests, the journal, archived files."""
