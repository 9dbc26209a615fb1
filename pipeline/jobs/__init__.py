"""The jobs of the pipeline: load, compact, mirror, audit, verify, publish, replay."""
