"""What fetches share: sessions, and those that wait for the same data."""
