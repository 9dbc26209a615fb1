"""The parts that all coordinators share: timers, the writer of their records, the topic that holds them."""
