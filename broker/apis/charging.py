"""The quotas of clients in the way of a request: what it is charged with, and for how long its connection is throttled.

The dispatcher asks here only for clients that have a quota. As in Apache Kafka the answer leaves at once, with the time
in `throttle_time_ms` where there is such a field, and then nothing is read from the connection for that time. A fetch
that is throttled gets an empty response; its bytes are taken back. Kinds, and when they are counted:

- bytes of Produce requests (frame), also of such with errors, but not of those that failed as a whole;
- bytes of Fetch responses;
- the time that the event loop spends on a request, of all APIs, but not with acks=0;
- partitions that are made or deleted, counted by the controller (`quotas.charge`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from klamm.broker.quotas.charge import Charge
from klamm.broker.quotas.client_quotas import NOTHING, ClientQuotas
from klamm.broker.quotas.entities import FETCH, MUTATION, PRODUCE, REQUEST
from klamm.protocol.apis import ApiKey
from klamm.protocol.messages.fetch import FetchRequest, FetchResponse

if TYPE_CHECKING:
    from klamm.broker.apis.dispatcher import RequestContext

RESPONSE_HEAD_BYTES = 8  # size and correlation id: not counted
MAX_MS = 2**31 - 1
NEVER_CHARGED = frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})


def begin(quotas: ClientQuotas, context: RequestContext, request: Any) -> None:
    """Charge the request, if a quota is for its client. A fetch may not ask for more than is allowed at once."""
    meter = quotas.meter(context.connection.principal, context.client_id)
    if meter is NOTHING or context.api_key in NEVER_CHARGED:
        return
    context.charge = Charge(meter, quotas)
    if context.api_key == ApiKey.FETCH and meter.fetch.most_at_once < request.max_bytes:
        _limit(request, max(0, int(meter.fetch.most_at_once)))


def _limit(request: FetchRequest, most_bytes: int) -> None:
    request.max_bytes = most_bytes
    request.min_bytes = min(request.min_bytes, most_bytes)


def without_answer(context: RequestContext, request_size: int) -> bool:
    """Charge a Produce request with acks=0; whether it throttles its connection."""
    charge = context.charge
    assert charge is not None
    produced_ms = charge.meter.produce.charge(request_size, charge.quotas.now())
    return produced_ms > 0 and throttle(context, charge, {PRODUCE: produced_ms})


def before(context: RequestContext, response: Any, seconds: float, request_size: int) -> None:
    """Charge any request but Fetch, before its response is encoded."""
    charge = context.charge
    assert charge is not None
    now_s = charge.quotas.now()
    spent_ms, produced_ms, mutated_ms = request_ms(charge, seconds, now_s), 0, 0
    if context.api_key == ApiKey.PRODUCE and not charge.is_failed:
        produced_ms = charge.meter.produce.charge(request_size, now_s)
    if charge.mutations is not None:
        mutated_ms = charge.mutations.throttle_ms()
    if spent_ms or produced_ms or mutated_ms:
        throttle(context, charge, {PRODUCE: produced_ms, REQUEST: spent_ms, MUTATION: mutated_ms})
        if hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = charge.throttle_ms


def after(context: RequestContext, response: FetchResponse, size: int, seconds: float) -> FetchResponse | None:
    """Charge a fetch with an encoded response of `size` bytes. Return the response to send instead, if any."""
    charge = context.charge
    assert charge is not None
    now_s = charge.quotas.now()
    size -= RESPONSE_HEAD_BYTES
    fetched_ms, spent_ms = charge.meter.fetch.charge(size, now_s), request_ms(charge, seconds, now_s)
    if not fetched_ms and not spent_ms:
        return None
    throttle(context, charge, {FETCH: fetched_ms, REQUEST: spent_ms})
    charge.meter.fetch.take_back(size, now_s)
    session_id = charge.take_back() if charge.take_back is not None else 0
    return FetchResponse(
        throttle_time_ms=charge.throttle_ms, error_code=response.error_code, session_id=session_id, responses=[]
    )


def request_ms(charge: Charge, seconds: float, now_s: float) -> int:
    """Charge the time that was spent, `seconds` if the request did not wait; throttled for one sample at most."""
    throttle_ms = charge.meter.request.charge(charge.spent_s if charge.has_waited else seconds, now_s)
    return min(throttle_ms, charge.quotas.windows.size_ms) if throttle_ms else 0


def throttle(context: RequestContext, charge: Charge, times: dict[str, int]) -> bool:
    """Throttle the connection for the longest of the times, which are by kind of quota. Always true."""
    kind = max(times, key=times.__getitem__)
    charge.throttle_ms = throttle_ms = min(times[kind], MAX_MS)
    charge.quotas.note_throttled(kind, throttle_ms)
    context.connection.throttle(throttle_ms)
    return True
