"""Log files as text: `klamm dump-log`, in the lines of Apache Kafka's `kafka-dump-log`.

`files` chooses by the name of each file: `log_file` (batches and records) or `index_files`; `decoders` turn keys and
values into text. Lines that Kafka's tool prints to stdout are the same here; problems go to stderr. Nothing is written.
Damaged files are shown as far as possible.
"""
