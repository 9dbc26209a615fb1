"""Apache Kafka's command line tools as calls: `tools.topics("--list")` is what `kafka-topics --list` does."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.support.java_process import JavaProcess

PACKAGE: Final = "org.apache.kafka.tools."


class ToolFailed(AssertionError):
    """A tool has ended with another code than 0; the message has all it printed."""


class KafkaTools:
    """The tools for one broker, all in one JVM. Each call returns what the tool printed."""

    def __init__(self, process: JavaProcess, address: str) -> None:
        self._process = process
        self.address = address

    def run(self, name: str, arguments: Sequence[str], text: str = "") -> str:
        answer = self._process.ask({"class": name, "arguments": list(arguments), "input": text})
        output, errors = str(answer["output"]), str(answer["errors"])
        if answer["code"] != 0:
            raise ToolFailed(f"{name} {' '.join(arguments)} ended with {answer['code']}\n{output}\n{errors}")
        return output

    def _ask(self, name: str, *arguments: str, text: str = "") -> str:
        return self.run(name, ["--bootstrap-server", self.address, *arguments], text)

    def topics(self, *arguments: str) -> str:
        return self._ask(PACKAGE + "TopicCommand", *arguments)

    def configs(self, *arguments: str) -> str:
        return self._ask("kafka.admin.ConfigCommand", *arguments)

    def acls(self, *arguments: str) -> str:
        return self._ask(PACKAGE + "AclCommand", *arguments)

    def console_producer(self, *arguments: str, text: str) -> str:
        return self._ask(PACKAGE + "ConsoleProducer", *arguments, text=text)

    def console_consumer(self, *arguments: str) -> str:
        return self._ask(PACKAGE + "consumer.ConsoleConsumer", *arguments)

    def get_offsets(self, *arguments: str) -> dict[str, int]:
        """Return the offsets by "topic:partition"; partitions without an answer are not there."""
        lines = self._ask(PACKAGE + "GetOffsetShell", *arguments).split()
        return {line.rpartition(":")[0]: int(line.rpartition(":")[2]) for line in lines}

    def delete_records(self, *arguments: str) -> str:
        return self._ask(PACKAGE + "DeleteRecordsCommand", *arguments)

    def log_dirs(self, *arguments: str) -> str:
        return self._ask(PACKAGE + "LogDirsCommand", *arguments)

    def broker_api_versions(self) -> str:
        return self._ask(PACKAGE + "BrokerApiVersionsCommand")

    def features(self, *arguments: str) -> str:
        return self._ask(PACKAGE + "FeatureCommand", *arguments)

    def producer_perf_test(self, topic: str, count: int, size: int, *properties: str) -> str:
        arguments = ["--topic", topic, "--num-records", str(count), "--record-size", str(size), "--throughput", "-1"]
        given = [f"bootstrap.servers={self.address}", *properties]
        return self.run(PACKAGE + "ProducerPerformance", [*arguments, "--command-property", *given])

    def dump_log(self, files: Sequence[Path], *arguments: str) -> str:
        """Return the dump of the files; check that nothing in it looks like trouble."""
        listed = ",".join(str(file) for file in files)
        output = self.run(PACKAGE + "DumpLogSegments", ["--files", listed, *arguments])
        trouble = ("isvalid: false", "Found", "mismatch", "Unexpected", "Exception", "corrupt", "non-consecutive")
        assert not any(word in output for word in trouble), output
        assert output.count("Dumping ") == len(files), output
        return output
