"""The records that coordinators keep in internal topics: their keys and values, in Kafka's formats.

    key   = kind i16 | fields of the key        the "version" of a key is the kind of record
    value = version i16 | fields of the value   null: a tombstone

`klamm.protocol.coordinator_records.group`, and here `share_group` and `streams_group`, are in `__consumer_offsets`,
`transaction` is in `__transaction_state`, `share_state` in `__share_group_state`. `kinds` finds the classes of a
record. Only layouts live here; the coordinators know their meaning. Source: Kafka 4.4's coordinator messages.
"""
