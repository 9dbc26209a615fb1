"""What log files hold, as text: `klamm dump-log`, in the lines of Apache Kafka's `kafka-dump-log`.

`files` goes by the name of each file, to `log_file` (batches and records) or `index_files`; `decoders` turn keys and
values into text. Lines that Kafka's tool prints to stdout come out the same; what is wrong goes to stderr. Everything
only reads. Damaged files are shown as far as they go.
"""
