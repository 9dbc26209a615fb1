"""What every engine of the metadata store must do.

A test class derives from `StoreContract` and has a fixture `stores`: a function that opens the store; calling it again
after `close` opens it as the next process would.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klamm.broker.metadata.store import (
    BadVersion,
    Check,
    Create,
    Delete,
    EphemeralParent,
    EventKind,
    MetadataStore,
    Node,
    NodeExists,
    NoNode,
    NotEmpty,
    Set,
    StoreError,
    WatchEvent,
)

Stores = Callable[[], MetadataStore]

PATHS = st.sampled_from(["/a", "/a/b", "/a/b/c", "/a-b", "/a.b", "/a0", "/b", "/b/0"])
VALUES = st.binary(max_size=4)
OPERATIONS = st.one_of(
    st.builds(Create, PATHS, VALUES, make_parents=st.booleans()),
    st.builds(Set, PATHS, VALUES, st.integers(-1, 2)),
    st.builds(Delete, PATHS, st.integers(-1, 2), st.booleans()),
    st.builds(Check, PATHS, st.integers(-1, 2)),
)


class Model:
    """The tree as a dict of path -> (value, version)."""

    def __init__(self) -> None:
        self.nodes: dict[str, tuple[bytes, int]] = {}

    def multi(self, operations: list[Create | Set | Delete | Check]) -> type[StoreError] | None:
        before = dict(self.nodes)
        for operation in operations:
            error = self._apply(operation)
            if error is not None:
                self.nodes = before
                return error
        return None

    def _apply(self, operation: Create | Set | Delete | Check) -> type[StoreError] | None:
        path = operation.path
        if isinstance(operation, Create):
            parents = [path[:end] for end in range(1, len(path)) if path[end] == "/"]
            missing = [parent for parent in parents if parent not in self.nodes]
            if missing and not operation.make_parents:
                return NoNode
            if path in self.nodes:
                return NodeExists
            for parent in missing:
                self.nodes[parent] = (b"", 0)
            self.nodes[path] = (operation.value, 0)
            return None
        if path not in self.nodes:
            return NoNode
        _, version = self.nodes[path]
        if operation.version not in (-1, version):
            return BadVersion
        if isinstance(operation, Set):
            self.nodes[path] = (operation.value, version + 1)
        elif isinstance(operation, Delete):
            below = [other for other in self.nodes if other.startswith(path + "/")]
            if below and not operation.recursive:
                return NotEmpty
            for gone in [path, *below]:
                del self.nodes[gone]
        return None


class StoreContract:
    def test_a_created_node_has_its_value_and_version_0(self, stores: Stores) -> None:
        store = stores()
        store.create("/a", b"x")
        assert store.get("/a") == Node(b"x", 0)
        assert store.exists("/a") and not store.exists("/b")

    def test_every_set_counts_the_version_up(self, stores: Stores) -> None:
        store = stores()
        store.create("/a")
        assert store.set("/a", b"1") == 1
        assert store.set("/a", b"2", version=1) == 2
        assert store.get("/a") == Node(b"2", 2)

    def test_a_version_that_is_not_the_current_one_changes_nothing(self, stores: Stores) -> None:
        store = stores()
        store.create("/a", b"x")
        with pytest.raises(BadVersion):
            store.set("/a", b"y", version=1)
        with pytest.raises(BadVersion):
            store.delete("/a", version=1)
        assert store.get("/a") == Node(b"x", 0)

    def test_a_node_needs_its_parent(self, stores: Stores) -> None:
        store = stores()
        with pytest.raises(NoNode):
            store.create("/a/b")
        store.create("/a/b/c", b"x", make_parents=True)
        assert store.get("/a") == Node(b"", 0)

    def test_a_node_is_made_once(self, stores: Stores) -> None:
        store = stores()
        store.create("/a", b"x")
        with pytest.raises(NodeExists):
            store.create("/a", b"y")
        assert store.get("/a").value == b"x"

    def test_what_does_not_exist_has_no_value_no_children_and_nothing_to_change(self, stores: Stores) -> None:
        store = stores()
        for call in (store.get, store.children, store.delete, lambda path: store.set(path, b"")):
            with pytest.raises(NoNode):
                call("/a")
        assert list(store.subtree("/a")) == []

    def test_children_are_names_in_order_and_no_grandchildren(self, stores: Stores) -> None:
        store = stores()
        for path in ("/a", "/a/c", "/a/b", "/a/b/x", "/a-b", "/a.b", "/a0"):
            store.create(path)
        assert store.children("/a") == ["b", "c"]
        assert store.children("/") == ["a", "a-b", "a.b", "a0"]
        assert store.children("/a/c") == []

    def test_the_subtree_is_everything_below_that_has_a_value(self, stores: Stores) -> None:
        store = stores()
        for path in ("/a", "/a/b", "/a/b/c", "/a/b-c", "/a-b", "/a0", "/aa"):
            store.create(path, path.encode())
        store.create("/a/empty")
        assert dict(store.subtree("/a")) == {path: Node(path.encode(), 0) for path in ("/a/b", "/a/b/c", "/a/b-c")}
        assert len(dict(store.subtree("/"))) == 7

    def test_a_node_with_children_is_deleted_only_recursively(self, stores: Stores) -> None:
        store = stores()
        store.create("/a/b/c", make_parents=True)
        store.create("/a-b")
        with pytest.raises(NotEmpty):
            store.delete("/a")
        store.delete("/a", recursive=True)
        assert store.children("/") == ["a-b"]
        assert not store.exists("/a/b/c")

    def test_multi_is_all_or_nothing(self, stores: Stores) -> None:
        store = stores()
        store.create("/a", b"x")
        with pytest.raises(BadVersion):
            store.multi([Create("/b"), Set("/a", b"y"), Check("/a", 7)])
        assert store.get("/a") == Node(b"x", 0) and not store.exists("/b")
        store.multi([Create("/b"), Check("/a", 0), Set("/a", b"y", 0), Delete("/b")])
        assert store.get("/a") == Node(b"y", 1) and not store.exists("/b")

    def test_changes_survive_a_close(self, stores: Stores) -> None:
        store = stores()
        store.create("/a/b", b"x", make_parents=True)
        store.set("/a/b", b"y")
        store.close()
        assert stores().get("/a/b") == Node(b"y", 1)

    def test_ephemeral_nodes_go_with_their_session(self, stores: Stores) -> None:
        store = stores()
        store.create("/ids")
        store.create("/ids/1", b"x", ephemeral=True)
        store.set("/ids/1", b"y")
        assert store.get("/ids/1").value == b"y"
        store.close()
        assert stores().children("/ids") == []

    def test_an_ephemeral_node_has_no_children(self, stores: Stores) -> None:
        store = stores()
        store.create("/a", ephemeral=True)
        with pytest.raises(EphemeralParent):
            store.create("/a/b")

    def test_a_closed_store_refuses(self, stores: Stores) -> None:
        store = stores()
        store.close()
        store.close()
        with pytest.raises(StoreError):
            store.get("/")
        with pytest.raises(StoreError):
            store.create("/a")

    def test_a_watch_tells_of_changes_of_its_node_until_cancelled(self, stores: Stores) -> None:
        store = stores()
        seen: list[WatchEvent] = []
        cancel = store.watch("/a", seen.append)
        store.create("/a")
        store.set("/a", b"x")
        store.create("/a/b")
        store.create("/b")
        store.delete("/a/b")
        store.delete("/a")
        kinds = (EventKind.CREATED, EventKind.CHANGED, EventKind.DELETED)
        assert seen == [WatchEvent(kind, "/a") for kind in kinds]
        cancel()
        store.create("/a")
        assert len(seen) == 3

    def test_a_recursive_watch_tells_of_what_is_below(self, stores: Stores) -> None:
        store = stores()
        seen: list[str] = []
        store.watch("/a", lambda event: seen.append(f"{event.kind.value} {event.path}"), recursive=True)
        store.create("/a/b", make_parents=True)
        store.create("/ab")
        store.delete("/a", recursive=True)
        assert sorted(seen) == ["created /a", "created /a/b", "deleted /a", "deleted /a/b"]

    def test_a_failed_change_is_not_reported(self, stores: Stores) -> None:
        store = stores()
        seen: list[WatchEvent] = []
        store.watch("/", seen.append, recursive=True)
        with pytest.raises(NoNode):
            store.multi([Create("/a"), Delete("/b")])
        assert seen == []

    def test_a_watcher_sees_the_change_it_is_called_for(self, stores: Stores) -> None:
        store = stores()
        values: list[bytes] = []
        store.watch("/a", lambda event: values.append(store.get(event.path).value))
        store.create("/a", b"x")
        assert values == [b"x"]

    def test_the_revision_grows_with_every_change_and_survives(self, stores: Stores) -> None:
        store = stores()
        before = store.revision()
        store.create("/a")
        store.set("/a", b"x")
        after = store.revision()
        assert after >= before + 2
        store.close()
        assert stores().revision() >= after

    def test_it_agrees_with_a_model(self, stores: Stores) -> None:
        store = stores()

        @settings(max_examples=60, deadline=None)
        @given(st.lists(st.lists(OPERATIONS, min_size=1, max_size=4), max_size=12))
        def agrees(transactions: list[list[Create | Set | Delete | Check]]) -> None:
            for name in store.children("/"):
                store.delete(f"/{name}", recursive=True)
            model = Model()
            for operations in transactions:
                expected = model.multi(operations)
                try:
                    store.multi(operations)
                    outcome = None
                except StoreError as error:
                    outcome = type(error)
                assert outcome is expected
            for path, (value, version) in model.nodes.items():
                assert store.get(path) == Node(value, version)
            with_value = {path: Node(*node) for path, node in model.nodes.items() if node[0]}
            assert dict(store.subtree("/")) == with_value

        agrees()
