"""The store of the metadata: a small tree of nodes like ZooKeeper's. ZooKeeper is one of its implementations.

A node has a path (``/brokers/topics/flights``), a value of bytes and a version that counts its changes from 0. The
parent of a node must exist; a node with children cannot be deleted; an ephemeral node has no children and is deleted at
the end of the session that created it. A change is durable when its call returns: it survives `kill -9` and loss of
power.

Every call blocks and may be made from any thread; the controller makes them from one. Watches report the path of a
change after it is durable, on any thread of the implementation; the receiver reads the node itself.

`paths` and `image` define the meaning of the nodes; this module knows only the tree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

ANY_VERSION = -1


class StoreError(Exception):
    """An error of a store; the message is one line for the operator's log."""


class NoNode(StoreError):
    """The node, or the parent of a node to be created, does not exist."""


class NodeExists(StoreError):
    """The node to be created exists."""


class BadVersion(StoreError):
    """The node was changed after the caller has read it."""


class NotEmpty(StoreError):
    """The node to be deleted has children."""


class EphemeralParent(StoreError):
    """An ephemeral node cannot have children."""


class StoreUnavailable(StoreError):
    """The change was not made (no space, no session ...); a later try may succeed."""


class StoreFull(StoreUnavailable):
    """The change was not made, for lack of space."""


class StoreFailed(StoreError):
    """The disk failed: until the store is opened again it is unknown which changes are durable. Every further call
    fails.
    """


class StoreCorrupt(StoreError):
    """The stored data differ from the written data."""


@dataclass(frozen=True, slots=True)
class Node:
    """The value and version of one path."""

    value: bytes
    version: int


@dataclass(frozen=True, slots=True)
class Create:
    """Create a node. ``make_parents`` creates missing nodes above it, with empty values."""

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
    """Delete a node that has this version; with ``recursive`` also all nodes below it."""

    path: str
    version: int = ANY_VERSION
    recursive: bool = False


@dataclass(frozen=True, slots=True)
class Check:
    """Change nothing, but make the whole multi fail unless the node has this version."""

    path: str
    version: int = ANY_VERSION


Operation = Create | Set | Delete | Check


class EventKind(Enum):
    """The kinds of change of a watched path."""

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
    """The interface of a store. All methods block, are safe to call from any thread, and raise StoreError only."""

    def get(self, path: str) -> Node:
        """Return the node. Raises NoNode."""

    def exists(self, path: str) -> bool:
        """Return whether there is a node."""

    def children(self, path: str) -> list[str]:
        """Return the names (not paths) of the child nodes, sorted. Raises NoNode."""

    def subtree(self, path: str) -> Iterator[tuple[str, Node]]:
        """Return path and node of everything below ``path`` that has a value, in no order, in few round trips.

        A node that does not exist has nothing below it.
        """

    def create(self, path: str, value: bytes = b"", *, ephemeral: bool = False, make_parents: bool = False) -> None:
        """Create a node of version 0. Raises NodeExists, NoNode (the parent), EphemeralParent."""

    def set(self, path: str, value: bytes, version: int = ANY_VERSION) -> int:
        """Replace the value and return the new version. Raises NoNode, BadVersion."""

    def delete(self, path: str, version: int = ANY_VERSION, *, recursive: bool = False) -> None:
        """Delete the node. Raises NoNode, BadVersion, NotEmpty."""

    def multi(self, operations: Sequence[Operation]) -> None:
        """Carry out all operations in this order, or none; then raise the error of the first that fails."""

    def watch(self, path: str, callback: WatchCallback, *, recursive: bool = False) -> Callable[[], None]:
        """Call back after each change of the node, and with ``recursive`` of those below, until the returned function
        is called. Reports this session's own changes, too.
        """

    def revision(self) -> int:
        """Return a number that grows with every change of the store (ZooKeeper's zxid)."""

    def close(self) -> None:
        """End the session and delete its ephemeral nodes. Idempotent."""


def split(path: str) -> tuple[str, str]:
    """Return parent and name of a path. The root is ``/``, its children have the parent ``/``."""
    assert path.startswith("/") and not path.endswith("/") and "//" not in path, path
    parent, _, name = path.rpartition("/")
    return parent or "/", name


@contextmanager
def shape(path: str) -> Iterator[None]:
    """Turn any error in decoding a value into StoreCorrupt for its node."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise StoreCorrupt(f"metadata node {path}, or one below it, lacks its shape: {error!r}") from None
