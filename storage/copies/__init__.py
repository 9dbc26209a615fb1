"""Logs copied elsewhere: moves between log directories, snapshots, followers."""
