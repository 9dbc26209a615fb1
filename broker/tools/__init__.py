"""Tools for a stopped broker or another system's files: import, export, snapshot, restore."""
