"""The audit: a proof that no record is missing. Each tier counts records per topic and time window.

It follows LinkedIn's audit of Kafka. Every tier counts by the timestamp that a record was given first, so all of them
put it into the same window, however late it comes. `counter` counts where records are produced, and sends the counts to
a topic or a file. `tiers` counts the records in a cluster, its mirror and the warehouse. `comparison` finds where
counts differ.
"""
