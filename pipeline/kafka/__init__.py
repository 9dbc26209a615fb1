"""What the pipeline asks of a Kafka cluster: records read and produced, groups, transactions, topics."""
