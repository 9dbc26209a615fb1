"""Compaction: which records stay, the process that copies them, and its results."""
