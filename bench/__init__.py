"""Benchmarks: `make bench` compares with Apache Kafka; micro-benchmarks measure single layers."""
