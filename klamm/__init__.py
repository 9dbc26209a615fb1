"""Klamm: a standalone Kafka broker in Python."""

__version__ = "0.1.0"
