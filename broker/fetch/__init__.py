"""Fetch sessions, and fetches that wait for the same data."""
