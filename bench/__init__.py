"""Measurements: `make bench` beside Apache Kafka, and micro-benchmarks of single layers."""
