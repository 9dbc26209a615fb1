"""The records of Apache Kafka's cluster metadata, which a KRaft controller keeps in `__cluster_metadata-0`.

    record value = frame version uvarint (1) | api key uvarint | version uvarint | the fields      (no key)

The log and its snapshots (`<end offset>-<epoch>.checkpoint`) hold such records in ordinary batches, beside control
batches (`control`). `kinds` finds the class of a record. Only layouts live here. Source: Kafka 4.4, messages of type
`metadata`; KIP-631.
"""
