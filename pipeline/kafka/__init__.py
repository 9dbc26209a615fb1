"""The Kafka client of the pipeline: records read and produced, groups, transactions, topics."""
