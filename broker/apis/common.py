"""What several handlers need: the address that a client should dial, and the bits of authorized operations."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from klamm.broker.apis.dispatcher import RequestContext
    from klamm.broker.broker import Broker

NOT_ASKED = -(2**31)  # authorized operations that the client did not ask for

# AclOperation codes: READ 3, WRITE 4, CREATE 5, DELETE 6, ALTER 7, DESCRIBE 8, CLUSTER_ACTION 9,
# DESCRIBE_CONFIGS 10, ALTER_CONFIGS 11, IDEMPOTENT_WRITE 12; a set is the sum of 1 << code.
TOPIC_OPERATIONS = sum(1 << code for code in (3, 4, 5, 6, 7, 8, 10, 11))
GROUP_OPERATIONS = sum(1 << code for code in (3, 6, 8, 10, 11))
CLUSTER_OPERATIONS = sum(1 << code for code in (5, 7, 8, 9, 10, 11, 12))


def advertised_address(broker: Broker, context: RequestContext) -> tuple[str, int]:
    """Host and port that the client of this request should dial.

    ``advertised.listeners`` where it is set for the listener of the request; else the local address of the accepted
    socket, which the client has just shown to reach.
    """
    connection = context.connection
    advertised = broker.advertised.get(connection.listener)
    if advertised is not None:
        return advertised
    return connection.local_address


def unseen(context: RequestContext, key: Hashable) -> bool:
    """Whether this is the first time that the request, in whichever of its pieces, asks for `key`. What may be answered
    at length is answered once, or a small request would make a response of gigabytes."""
    seen: set[Hashable] | None = getattr(context, "seen", None)
    if seen is None:
        seen = context.seen = set()
    if key in seen:
        return False
    seen.add(key)
    return True
