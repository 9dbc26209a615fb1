"""What runs while the broker is stopped, or reads another system's files: import, export, snapshot, restore."""
