"""The metrics of a node, and their text for Prometheus."""

from klamm.broker.metrics.recording import ApiMetrics, Family, Metrics, TopicMetrics

__all__ = ["ApiMetrics", "Family", "Metrics", "TopicMetrics"]
