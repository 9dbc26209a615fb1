"""Memos of repeated requests: a connection's repeated request gets its response without being decoded."""
