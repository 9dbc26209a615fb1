"""Verifying in the background what has been written."""
