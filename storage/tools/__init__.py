"""What an operator runs on files: dump, verify, repair."""
