"""Values as texts: for a terminal, a file, a chat or a page. Nothing here reads a warehouse."""
