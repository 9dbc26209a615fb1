"""The process that compacts: `python -m klamm.storage.compaction.cleaner_worker`, one process for each run.

It reads one line of JSON, a `Job`. It writes a line `{"group": Cleaned}` for each segment that is ready to be swapped
in, and at last `{"result": Result}`, `{"damaged": why}` or `{"failed": why}`. It runs at low priority, keeps to
`bytes_per_second`, and ends at once when its standard input ends: a broker that dies leaves no cleaner running, which
would write files that the next broker uses.

Its working directory is the partition's, and its file names are relative to it: if the directory is renamed, the
process stays in it, even if another directory takes the old name.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from dataclasses import asdict, replace
from typing import Any

from klamm.protocol.errors import CorruptMessage, InvalidRecord, KafkaError
from klamm.storage.compaction.cleaner import Cleaner, Job, Result, Source
from klamm.storage.filesystem import OsFilesystem, describe
from klamm.storage.log.cleaned_segment import Cleaned
from klamm.storage.log.transaction_index import AbortedTransaction

NICENESS = 10
MIN_PAUSE_SECONDS = 0.05


class Throttle:
    """A limit of `bytes_per_second`, measured from the start; it sleeps when the limit is exceeded."""

    def __init__(self, bytes_per_second: float) -> None:
        self._rate = bytes_per_second
        self._start = time.monotonic()
        self._spent = 0

    def __call__(self, size_bytes: int) -> None:
        self._spent += size_bytes
        ahead = self._spent / self._rate - (time.monotonic() - self._start)
        if ahead > MIN_PAUSE_SECONDS:
            time.sleep(ahead)


def encode_job(job: Job) -> bytes:
    return json.dumps(asdict(job)).encode() + b"\n"


def decode_job(line: bytes) -> Job:
    fields = json.loads(line)
    fields["sources"] = tuple(Source(**source) for source in fields["sources"])
    for name in ("last_offsets", "last_epochs"):  # keys of objects are texts
        fields[name] = {int(producer_id): number for producer_id, number in fields[name].items()}
    fields["aborted"] = tuple(AbortedTransaction(*transaction) for transaction in fields["aborted"])
    return Job(**fields)


def decode_group(fields: dict[str, Any]) -> Cleaned:
    return Cleaned(**{**fields, "sources": tuple(fields["sources"])})


def decode_result(fields: dict[str, Any]) -> Result:
    groups = tuple(map(decode_group, fields["groups"]))
    return Result(fields["end_offset"], groups, fields["bytes_read"], fields["bytes_written"])


def answer(line: bytes) -> dict[str, Any]:
    job = replace(decode_job(line), directory=".")
    try:
        cleaner = Cleaner(job, OsFilesystem(), Throttle(job.bytes_per_second))
        return {"result": asdict(cleaner.run(lambda group: tell({"group": asdict(group)})))}
    except (CorruptMessage, InvalidRecord) as error:
        return {"damaged": error.message}
    except KafkaError as error:
        return {"damaged": str(error)}
    except OSError as error:
        return {"failed": f"{error.filename or 'the partition'}: {describe(error)}"}


def tell(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def _end_with_the_broker() -> None:
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os._exit(1)


def main() -> None:
    os.nice(NICENESS)
    line = sys.stdin.buffer.readline()
    threading.Thread(target=_end_with_the_broker, daemon=True).start()
    tell(answer(line))


if __name__ == "__main__":
    main()
