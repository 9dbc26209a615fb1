"""Tools that operators run on files: dump, verify, repair."""
