"""The audit log: denied requests, changes of permissions and configs.

The logger `klamm.audit` has decisions in Kafka's words: denials at INFO, the others at DEBUG. With
`klamm.audit.log` each event is also a JSON object in a line of a file:

    {"time": "2026-01-01T00:00:00.000Z", "event": "denied", "principal": "User:a", "host": "10.0.0.1", ...}

Control characters are escaped in both, so that a name cannot forge a line. Denials of the same principal and resource
are logged once in `QUIET_S`, with the number of those left out since. A thread writes the lines. A disk that is
full or slow stops nothing: what cannot be written is counted.
"""

from __future__ import annotations

import json
import logging
import os
import stat
import threading
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from klamm.broker.security.authorizer.codes import Operation, ResourceType

if TYPE_CHECKING:
    from klamm.broker.security.authorizer.standard import StandardAuthorizer
    from klamm.storage.clock import Clock

log = logging.getLogger(__name__)
audit = logging.getLogger("klamm.audit")

QUIET_S = 1.0
MAX_KNOWN = 10_000  # denials that are remembered, the latest
MAX_UNWRITTEN = 10_000  # lines that wait for the disk


class Question(NamedTuple):
    """What the authorizer was asked, and for which request."""

    principal: str
    host: str
    operation: int
    resource: int
    name: str
    request: str

    def rule(self, authorizer: StandardAuthorizer) -> str:
        return authorizer.rule(self.principal, self.host, self.operation, self.resource, self.name)


def open_file(path: str) -> int:
    """A descriptor that appends to the file, which is only ours to read. Raises OSError that says why."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise OSError(f"klamm.audit.log={path}: {error.strerror}") from None
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
        os.close(descriptor)
        raise OSError(f"klamm.audit.log={path}: it must be a file of our own that only we may read (mode 0600)")
    return descriptor


class AuditLog:
    """Writes to the logger, and to the file if there is one."""

    def __init__(self, descriptor: int | None, clock: Clock) -> None:
        self.lost_count = 0
        self.denied_count = 0
        self._descriptor = descriptor
        self._clock = clock
        self._told: OrderedDict[tuple[str, int, str], tuple[float, int]] = OrderedDict()
        self._lines: list[str] = []
        self._lock = threading.Lock()
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="klamm-audit") if descriptor is not None else None

    def close(self) -> None:
        """Write the remaining lines. Blocks."""
        if self._writer is not None and self._descriptor is not None:
            self._writer.shutdown(wait=True)
            os.close(self._descriptor)
            self._writer = self._descriptor = None

    # -- decisions ----------------------------------------------------------------------------------------------

    @property
    def has_allowed(self) -> bool:
        """Whether decisions that allow are logged, too."""
        return audit.isEnabledFor(logging.DEBUG)

    def allowed(self, question: Question, authorizer: StandardAuthorizer) -> None:
        audit.debug("%s", _told("Allowed", question, authorizer))

    def denied(self, question: Question, authorizer: StandardAuthorizer) -> None:
        self.denied_count += 1
        left_out = self._left_out((question.principal, question.resource, question.name))
        if left_out is None:
            return
        more = f" ({left_out} more were left out)" if left_out else ""
        audit.info("%s%s", _told("Denied", question, authorizer), more)
        if self._descriptor is not None:
            self.event(
                "denied",
                question.principal,
                question.host,
                request=question.request,
                operation=Operation(question.operation).name,
                resource_type=ResourceType(question.resource).name,
                resource_name=question.name,
                rule=question.rule(authorizer),
                left_out=left_out,
            )

    def _left_out(self, key: tuple[str, int, str]) -> int | None:
        """Return the number of equal denials left out before this one; None if this one is left out, too."""
        now = self._clock.monotonic()
        told_at, left_out = self._told.pop(key, (now - QUIET_S, 0))
        if now - told_at < QUIET_S:
            self._told[key] = told_at, left_out + 1
            return None
        self._told[key] = now, 0
        if len(self._told) > MAX_KNOWN:
            self._told.popitem(last=False)
        return left_out

    # -- events -------------------------------------------------------------------------------------------------

    def changed(self, principal: str, host: str, request: str, what: str) -> None:
        """Tell of a change of rights, credentials or configs; `what` has no secret in it."""
        audit.info("Principal = %s from host = %s: %s %s", shown(principal), host, request, shown(what))
        self.event("changed", principal, host, request=request, what=what)

    def event(self, event: str, principal: str, host: str, **facts: str | int) -> None:
        """Write a line to the file, if there is one."""
        if self._writer is None:
            return
        time = datetime.fromtimestamp(self._clock.wall_ms() / 1000, UTC).isoformat(timespec="milliseconds")
        line = {"time": time.replace("+00:00", "Z"), "event": event, "principal": principal, "host": host}
        text = json.dumps({**line, **facts}) + "\n"
        with self._lock:
            if len(self._lines) >= MAX_UNWRITTEN:
                self.lost_count += 1
                return
            self._lines.append(text)
            if len(self._lines) > 1:
                return  # the writer is on its way
        self._writer.submit(self._write)

    def _write(self) -> None:
        with self._lock:
            lines, self._lines = self._lines, []
        assert self._descriptor is not None
        try:
            left = "".join(lines).encode()
            while left:
                left = left[os.write(self._descriptor, left) :]
        except OSError as error:
            self.lost_count += len(lines)
            log.error("%d events are missing in the audit log: %s", len(lines), error.strerror)


def _told(verdict: str, question: Question, authorizer: StandardAuthorizer) -> str:
    kind = "".join(part.title() for part in ResourceType(question.resource).name.split("_"))
    return (
        f"Principal = {shown(question.principal)} is {verdict} operation = {Operation(question.operation).name} "
        f"from host = {question.host} on resource = {kind}:LITERAL:{shown(question.name)} "
        f"for request = {question.request} with resourceRefCount = 1 based on rule {shown(question.rule(authorizer))}"
    )


def shown(text: str) -> str:
    """The text in one line, without control characters."""
    return text if text.isprintable() else text.encode("unicode_escape").decode("ascii")
