"""Requests that a connection repeats, answered without decoding them again."""
