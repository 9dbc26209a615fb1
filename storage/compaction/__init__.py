"""Compaction: which records stay, the process that copies them, what it hands over."""
