"""Proof that nothing is missing: records counted per topic and time window wherever they pass, and compared.

After LinkedIn's audit of Kafka: every tier counts by the timestamp that a record was given first, so that all of them
put it into the same window, however late it comes. `counter` counts where records are produced, and tells a topic or a
file; `tiers` counts what is in a cluster, its mirror and the warehouse; `comparison` finds where counts differ.
"""
