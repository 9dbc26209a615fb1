"""The order of replies against a model: whatever order the answers come in, they leave in the order of the requests."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.broker.network.close_reason import CloseReason
from klamm.broker.network.response import CloseConnection, PendingResponse, Response
from klamm.broker.network.response_queue import ResponseQueue

PRODUCE_KEY = b"\0\0"
PRODUCE = memoryview(PRODUCE_KEY + b"\0\x09")
FETCH = memoryview(b"\0\x01\0\x09")


def wait_of_produce(future: asyncio.Future[Response | None]) -> PendingResponse:
    return PendingResponse(future, lets_pass=PRODUCE_KEY, is_wait=True)


@given(st.permutations(range(6)), st.sets(st.integers(0, 5)))
def test_replies_leave_in_the_order_of_their_requests(order: list[int], silent: set[int]) -> None:
    loop = asyncio.new_event_loop()
    queue = ResponseQueue(lambda _: None)
    futures: list[asyncio.Future[Response | None]] = [loop.create_future() for _ in order]
    for future in futures:
        queue.put(wait_of_produce(future), len(PRODUCE))
    assert queue.bytes == 6 * len(PRODUCE)
    left: list[bytes] = []
    for number in order:
        futures[number].set_result(None if number in silent else Response(b"%d" % number))
        responses, failure = queue.take_ready()
        assert failure is None
        left += [bytes(response.head) for response in responses]
        first_open = next((index for index, future in enumerate(futures) if not future.done()), 6)
        assert left == [b"%d" % index for index in range(first_open) if index not in silent]
    assert queue.bytes == 0
    loop.close()


def test_only_produce_passes_produce_and_only_so_many() -> None:
    loop = asyncio.new_event_loop()
    queue = ResponseQueue(lambda _: None)
    assert queue.lets_pass(FETCH, 2)
    queue.put(wait_of_produce(loop.create_future()), len(PRODUCE))
    assert queue.lets_pass(PRODUCE, 2)
    assert not queue.lets_pass(FETCH, 2)
    assert not queue.lets_pass(PRODUCE, 1)
    assert not queue.lets_pass(PRODUCE[:1], 2)
    queue.abandon()
    for is_wait in (True, False):
        pending = PendingResponse(loop.create_future(), lets_pass=None, is_wait=is_wait)
        queue.put(pending, len(FETCH))
        assert not queue.lets_pass(PRODUCE, 2)
        queue.abandon()
        assert pending.future.cancelled() == is_wait
    assert queue.lets_pass(FETCH, 2)
    loop.close()


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (CloseConnection("acks=0 with an error"), CloseReason("refused", "acks=0 with an error")),
        (ZeroDivisionError(), CloseReason("bug", "internal error")),
        (asyncio.CancelledError(), CloseReason("cancelled", "a request was cancelled")),
    ],
)
def test_a_failure_lets_what_was_before_it_leave_and_drops_the_rest(error: BaseException, failure: CloseReason) -> None:
    loop = asyncio.new_event_loop()
    queue = ResponseQueue(lambda _: None)
    futures: list[asyncio.Future[Response | None]] = [loop.create_future() for _ in range(3)]
    for future in futures:
        queue.put(wait_of_produce(future), len(PRODUCE))
    futures[0].set_result(Response(b"first"))
    if isinstance(error, asyncio.CancelledError):
        futures[1].cancel()
    else:
        futures[1].set_exception(error)
    responses, found = queue.take_ready()
    assert [response.head for response in responses] == [b"first"]
    assert found == failure
    assert futures[2].cancelled()
    assert not queue.responses and queue.bytes == 0
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
