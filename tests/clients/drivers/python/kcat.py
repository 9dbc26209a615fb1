"""kcat, one run for each question; a member of a group is a run that goes on.

Its headers are those of a whole run, so a run sends a few records only. A member commits by itself, all 100 ms.
"""

from __future__ import annotations

import itertools
import json
import queue
import re
import subprocess
import threading
from collections.abc import Sequence
from typing import Any

from lines import HEARTBEAT_MS, SESSION_MS, TIMEOUT_S, Reading, Sent, row, sent, serve

KEY_END = b"<key>"
VALUE_END = b"<end>"
CANNOT = {"timestamps": "has no option for them", "transactions": "begins no transactions"}
members: list[subprocess.Popen[bytes]] = []
arrived: queue.Queue[list[Any]] = queue.Queue()


def hello(_: dict[str, Any]) -> dict[str, Any]:
    printed = _run(["kcat", "-V"]).decode()
    features = re.findall(r"builtin\.features=(\S+?)\)", printed)[0].split(",")
    known = [name for name in ("gzip", "snappy", "lz4", "zstd") if name in features]
    version, librdkafka = re.findall(r"Version (\S+) .*librdkafka (\S+)", printed)[0]
    return {"version": f"{version}, librdkafka {librdkafka}", "codecs": ["none", *known], "cannot": CANNOT}


def produce(question: dict[str, Any]) -> None:
    options = [f"-X{name}={value}" for name, value in question["config"].items()]
    by_partition = sorted(sent(question), key=lambda record: record[0])
    for (partition, headers, null), run in itertools.groupby(by_partition, _kind):
        command = ["kcat", "-P", "-b", question["address"], "-t", question["topic"], "-p", str(partition), *options]
        command += ["-K", KEY_END.decode(), "-D", VALUE_END.decode(), *(["-Z"] if null else [])]
        for name, value in headers:
            command += ["-H", name if value is None else f"{name}={value.decode()}"]
        _run(command, b"".join(map(_line, run)))


def _kind(record: Sent) -> tuple[int, list[tuple[str, bytes | None]], bool]:
    """What one run of kcat has in common. Without -Z empty is empty, with it empty is null."""
    partition, _, _, value, headers = record
    return partition, headers, value is None


def _line(record: Sent) -> bytes:
    _, _, key, value, _ = record
    if key is None and value is not None:
        return value + VALUE_END
    return (key or b"") + KEY_END + (value or b"") + VALUE_END


def consume(question: dict[str, Any]) -> list[Any]:
    reading = Reading(question)
    for partition, start in list(reading.positions.items()):
        count = question["ends"][str(partition)] - start
        for received in _consume(question, partition, start, count):
            reading.add(received)
    assert reading.is_done(), reading.positions
    return reading.rows


def _consume(question: dict[str, Any], partition: int, start: int, count: int) -> list[list[Any]]:
    if not count:
        return []
    command = ["kcat", "-q", "-C", "-b", question["address"], "-t", question["topic"], "-p", str(partition)]
    command += ["-o", str(start), "-X", "fetch.wait.max.ms=20", "-c", str(count), "-e"]
    command += [f"-X{name}={value}" for name, value in question["config"].items()]
    # The formatted output keeps bytes as they are, the JSON tells null headers from the text "NULL".
    data = _run([*command, "-f", r"%p %o %T %K %S\n%k%s\n"])
    envelopes = _run([*command, "-J"]).decode("utf-8", "replace").splitlines()
    received = []
    at = 0
    for envelope in envelopes:
        newline = data.index(b"\n", at)
        number, offset, timestamp, key_size, value_size = map(int, data[at:newline].split())
        key, at = _take(data, newline + 1, key_size)
        value, at = _take(data, at, value_size)
        assert data[at : at + 1] == b"\n"
        at += 1
        received.append(row(number, offset, timestamp, key, value, _headers(json.loads(envelope, strict=False))))
    assert at == len(data)
    return received


def _headers(envelope: dict[str, Any]) -> list[tuple[str, bytes | None]]:
    flat = envelope.get("headers", [])
    return [(name, None if text is None else text.encode()) for name, text in zip(flat[::2], flat[1::2], strict=True)]


def _take(data: bytes, at: int, size: int) -> tuple[bytes | None, int]:
    return (None, at) if size < 0 else (data[at : at + size], at + size)


def _run(command: Sequence[str], data: bytes = b"") -> bytes:
    done = subprocess.run(command, input=data, capture_output=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, f"{command}\n{done.stderr.decode(errors='replace')[-2000:]}"
    return done.stdout


def offset_for_time(question: dict[str, Any]) -> int | None:
    wanted = f"{question['topic']}:{question['partition']}:{question['timestamp']}"
    printed = _run(["kcat", "-Q", "-b", question["address"], "-t", wanted]).decode()
    offset = int(printed.split()[-1])
    return offset if offset >= 0 else None


def open_member(question: dict[str, Any]) -> None:
    options = {
        "auto.offset.reset": "earliest",
        "session.timeout.ms": SESSION_MS,
        "heartbeat.interval.ms": HEARTBEAT_MS,
        "auto.commit.interval.ms": 100,
    }
    command = ["kcat", "-q", "-J", "-u", "-b", question["address"], *[f"-X{name}={v}" for name, v in options.items()]]
    member = subprocess.Popen([*command, "-G", question["group"], question["topic"]], stdout=subprocess.PIPE)
    members.append(member)
    threading.Thread(target=_receive, args=(member,), daemon=True).start()


def _receive(member: subprocess.Popen[bytes]) -> None:
    assert member.stdout is not None
    for line in member.stdout:
        printed = json.loads(line, strict=False)
        key, value = (None if printed[name] is None else printed[name].encode() for name in ("key", "payload"))
        arrived.put(row(printed["partition"], printed["offset"], printed["ts"], key, value, _headers(printed)))


def poll(question: dict[str, Any]) -> dict[str, Any]:
    rows: list[list[Any]] = []
    try:
        rows.append(arrived.get(timeout=question["timeout_ms"] / 1000))
        while True:
            rows.append(arrived.get_nowait())
    except queue.Empty:
        return {"rows": rows}


def commit(_: dict[str, Any]) -> None:
    """Do nothing: kcat commits by itself."""


def close(_: dict[str, Any]) -> None:
    member = members.pop()
    member.terminate()
    assert member.wait(TIMEOUT_S) == 0, member.returncode


serve(
    {
        "hello": hello,
        "produce": produce,
        "consume": consume,
        "offset_for_time": offset_for_time,
        "open": open_member,
        "poll": poll,
        "commit": commit,
        "close": close,
    }
)
