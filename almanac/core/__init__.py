"""The ground floor: errors, files, timestamps, text, SQL statements, connections, progress.

Every part may import it. It imports no other part.
"""
