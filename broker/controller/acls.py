"""Addition and removal of ACLs.

An ACL that is there already, or twice in a request, is stored once. All ACLs of a
request are removed in one transaction. At most `MAX_AT_ONCE` are changed by one request.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from klamm.broker.controller.changes import Change
from klamm.broker.metadata import acl_nodes, paths
from klamm.broker.metadata.image import MetadataImage
from klamm.broker.metadata.store import Delete, Operation
from klamm.broker.security.authorizer.acls import Acl, AclFilter, check
from klamm.protocol.errors import InvalidRequest, KafkaError

MAX_AT_ONCE = 10_000

Removed = list[Acl] | KafkaError
"""The ACLs that a filter matches, or the error of an invalid filter."""


def creation(
    image: MetadataImage, wanted: Sequence[Acl], new_id: Callable[[], bytes]
) -> Change[list[KafkaError | None]]:
    """Add ACLs, each independently. Return an error or None for each. Raises InvalidRequest for too many."""
    if len(wanted) > MAX_AT_ONCE:
        raise InvalidRequest(f"{len(wanted)} ACLs, at most {MAX_AT_ONCE} are made at once")
    errors: list[KafkaError | None] = []
    known = set(image.acls.values())
    added: dict[bytes, Acl] = {}
    for acl in wanted:
        try:
            check(acl)
        except KafkaError as error:
            errors.append(error.without_frames())
            continue
        errors.append(None)
        if acl not in known:
            known.add(acl)
            added[new_id()] = acl
    if not added:
        return Change(errors)
    operations = [acl_nodes.creation(acl_id, acl) for acl_id, acl in added.items()]
    return Change(errors, operations, image.with_acls(added))


def deletion(image: MetadataImage, filters: Sequence[AclFilter]) -> Change[list[Removed]]:
    """Remove the ACLs that the filters match; an ACL that several filters match is listed by each."""
    results: list[Removed] = []
    gone: dict[bytes, None] = {}
    for wanted in filters:
        try:
            wanted.check()
            found = {acl_id: acl for acl_id, acl in image.acls.items() if wanted.matches(acl)}
            if len(gone.keys() | found.keys()) > MAX_AT_ONCE:
                raise InvalidRequest(f"more than {MAX_AT_ONCE} ACLs are not removed at once")
        except KafkaError as error:
            results.append(error.without_frames())
            continue
        gone |= dict.fromkeys(found)
        results.append(list(found.values()))
    if not gone:
        return Change(results)
    operations: list[Operation] = [Delete(paths.acl(acl_id)) for acl_id in gone]
    return Change(results, operations, image.without_acls(gone))
