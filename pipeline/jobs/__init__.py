"""What the pipeline does: load, compact, mirror, audit, verify, publish, replay."""
