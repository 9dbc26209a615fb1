"""The store below the metadata: a small tree of nodes, in the manner of ZooKeeper, which is one of its engines.

A node has a path (``/brokers/topics/flights``), a value of bytes and a version that counts its changes from 0. The
parent of a node must exist; a node with children cannot be deleted; an ephemeral node has no children and goes away
with the session that made it. A change that has returned is durable: it survives `kill -9` and loss of power.

Every call blocks and may be made from any thread; the controller makes them from one. Watches tell which path was
changed after the change is durable, on whatever thread the engine has; the receiver looks for itself.

What the nodes mean is in `paths` and `image`; this module knows only the tree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

ANY_VERSION = -1


class StoreError(Exception):
    """What a store can report; the message is one line for the operator's log."""


class NoNode(StoreError):
    """The node, or the parent of a node to be made, does not exist."""


class NodeExists(StoreError):
    """The node to be made exists."""


class BadVersion(StoreError):
    """The node was changed since the caller has read it."""


class NotEmpty(StoreError):
    """The node to be deleted has children."""


class EphemeralParent(StoreError):
    """An ephemeral node cannot have children."""


class StoreUnavailable(StoreError):
    """The change was not made (no space, no session ...); a later try may succeed."""


class StoreFull(StoreUnavailable):
    """The change was not made, for want of space."""


class StoreFailed(StoreError):
    """The disk failed: what is durable is unknown until the store is opened again. No call succeeds any more."""


class StoreCorrupt(StoreError):
    """What is stored is not what was written."""


@dataclass(frozen=True, slots=True)
class Node:
    """What is stored at one path."""

    value: bytes
    version: int


@dataclass(frozen=True, slots=True)
class Create:
    """Make a node. ``make_parents`` makes the missing nodes above it, with empty values."""

    path: str
    value: bytes = b""
    ephemeral: bool = False
    make_parents: bool = False


@dataclass(frozen=True, slots=True)
class Set:
    """Replace the value of a node that has this version."""

    path: str
    value: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a node that has this version; with ``recursive`` also all below it."""

    path: str
    version: int = ANY_VERSION
    recursive: bool = False


@dataclass(frozen=True, slots=True)
class Check:
    """Change nothing, but let the whole multi fail unless the node has this version."""

    path: str
    version: int = ANY_VERSION


Operation = Create | Set | Delete | Check


class EventKind(Enum):
    """What happened to a watched path."""

    CREATED = "created"
    CHANGED = "changed"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One change of one node."""

    kind: EventKind
    path: str


WatchCallback = Callable[[WatchEvent], None]


class MetadataStore(Protocol):
    """The seam. All methods block, are safe to call from any thread, and raise StoreError only."""

    def get(self, path: str) -> Node:
        """The node; raises NoNode."""

    def exists(self, path: str) -> bool:
        """Whether there is a node."""

    def children(self, path: str) -> list[str]:
        """The names (not paths) of the nodes right below, sorted; raises NoNode."""

    def subtree(self, path: str) -> Iterator[tuple[str, Node]]:
        """Path and node of everything below ``path`` that has a value, in no order, in few round trips.

        A node that does not exist has nothing below it.
        """

    def create(self, path: str, value: bytes = b"", *, ephemeral: bool = False, make_parents: bool = False) -> None:
        """Make a node of version 0; raises NodeExists, NoNode (the parent), EphemeralParent."""

    def set(self, path: str, value: bytes, version: int = ANY_VERSION) -> int:
        """Replace the value, return the new version; raises NoNode, BadVersion."""

    def delete(self, path: str, version: int = ANY_VERSION, *, recursive: bool = False) -> None:
        """Delete the node; raises NoNode, BadVersion, NotEmpty."""

    def multi(self, operations: Sequence[Operation]) -> None:
        """All of them in this order, or none and the error of the first that fails."""

    def watch(self, path: str, callback: WatchCallback, *, recursive: bool = False) -> Callable[[], None]:
        """Call back after each change of the node, and with ``recursive`` of those below, until the returned
        function is called. Of a session's own changes, too."""

    def revision(self) -> int:
        """A number that grows with every change of the store (ZooKeeper's zxid)."""

    def close(self) -> None:
        """End the session: its ephemeral nodes go away. Idempotent."""


def split(path: str) -> tuple[str, str]:
    """Parent and name of a path. The root is ``/``, its children have the parent ``/``."""
    assert path.startswith("/") and not path.endswith("/") and "//" not in path, path
    parent, _, name = path.rpartition("/")
    return parent or "/", name
