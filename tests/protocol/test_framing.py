"""Frames come out whole and in order, whatever the chunks; memory follows what arrived."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.protocol.framing import KEEP_BYTES, MAP_BYTES, FrameBuffer, FrameError, Scratch


def frame(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def feed(buffer: FrameBuffer, data: bytes, chunk: int | None = None) -> list[bytes]:
    """Drive the buffer as a connection does; the frames as copies."""
    frames = []
    while data:
        view = buffer.writable()
        size = min(len(view), len(data), chunk or len(data))
        view[:size] = data[:size]
        data = data[size:]
        whole = buffer.received_frame(size) if size % 2 else buffer.received(size)
        if whole is not None:
            frames.append(bytes(whole))
            assert not buffer.buffered_bytes
            continue
        while (whole := buffer.next_frame()) is not None:
            frames.append(bytes(whole))
        buffer.settle()
    return frames


def test_a_frame_that_is_all_there_is_comes_at_once() -> None:
    buffer = FrameBuffer(Scratch(64), 20)
    for data, expected in (
        (frame(b"x" * 20), b"x" * 20),
        (frame(b"x" * 21), None),  # too large: `next_frame` says so
        (frame(b"ab") + b"\0", None),
        (frame(b"ab")[:-1], None),
        (b"\0\0\0\0", None),
    ):
        buffer.writable()[: len(data)] = data
        found = buffer.received_frame(len(data))
        assert (None if found is None else bytes(found)) == expected
        assert buffer.buffered_bytes == (0 if expected else len(data))
        buffer.discard()


@pytest.mark.parametrize("cut", [0, 3, 8])
def test_a_frame_that_is_kept_is_not_written_over(cut: int) -> None:
    buffer = FrameBuffer(Scratch(1024), 1 << 20)
    following = frame(b"next") + frame(b"y" * 500)
    assert feed(buffer, frame(b"x" * 300)[:100]) == []  # so that the frame is not in the scratch
    data = frame(b"x" * 300)[100:] + following[:cut]
    view = buffer.writable()
    size = min(len(view), len(data))
    view[:size] = data[:size]
    buffer.received(size)
    data = data[size:] + following[cut:]
    if (kept := buffer.next_frame()) is None:
        buffer.settle()
        view = buffer.writable()
        size = min(len(view), len(data) - len(following) + cut)
        view[:size] = data[:size]
        buffer.received(size)
        data = data[size:]
        kept = buffer.next_frame()
    assert kept is not None and buffer.keep()
    buffer.settle()
    assert feed(buffer, data) == [b"next", b"y" * 500]
    assert kept == b"x" * 300


def test_a_frame_in_the_scratch_cannot_be_kept() -> None:
    buffer = FrameBuffer(Scratch(64), 1 << 20)
    buffer.writable()[:6] = frame(b"ab")
    assert buffer.received_frame(6) is not None
    assert not buffer.keep()


def test_a_large_frame_is_received_in_one_piece_of_memory() -> None:
    """The first bytes are copied while they are few; from then on the rest arrives where it belongs."""
    buffer = FrameBuffer(Scratch(1 << 16), 1 << 30)
    payload = bytes(range(256)) * (MAP_BYTES // 32)
    assert feed(buffer, frame(payload)) == [payload]
    buffer = FrameBuffer(Scratch(1 << 16), 1 << 30)
    feed(buffer, frame(payload)[: MAP_BYTES * 3])
    assert buffer.capacity_bytes == len(payload) + 4


@given(
    payloads=st.lists(st.binary(min_size=1, max_size=600), max_size=30),
    chunks=st.lists(st.integers(1, 700), min_size=1, max_size=20),
    scratch=st.integers(8, 512),
)
def test_any_chunking_gives_the_same_frames(payloads: list[bytes], chunks: list[int], scratch: int) -> None:
    shared = Scratch(scratch)
    buffer, other = FrameBuffer(shared, 1 << 20), FrameBuffer(shared, 1 << 20)
    data = b"".join(map(frame, payloads))
    frames = []
    turn = 0
    while data:
        chunk = chunks[turn % len(chunks)]
        frames += feed(buffer, data[:chunk])
        assert feed(other, frame(b"x" * (chunk % 9 + 1))) == [b"x" * (chunk % 9 + 1)]  # another user of the scratch
        data = data[chunk:]
        turn += 1
    assert frames == payloads
    assert buffer.buffered_bytes == 0
    assert not buffer.has_frame()


@given(
    payloads=st.lists(st.binary(min_size=1, max_size=50), min_size=1, max_size=20),
    takes=st.lists(st.integers(0, 3), min_size=1, max_size=40),
)
def test_frames_left_in_the_buffer_survive_settle(payloads: list[bytes], takes: list[int]) -> None:
    buffer = FrameBuffer(Scratch(4096), 1 << 20)
    data = b"".join(map(frame, payloads))
    view = buffer.writable()
    view[: len(data)] = data
    buffer.received(len(data))
    seen = []
    for take in [*takes, len(payloads)]:
        for _ in range(take):
            whole = buffer.next_frame()
            if whole is not None:
                seen.append(bytes(whole))
        buffer.settle()
        assert buffer.has_frame() == (len(seen) < len(payloads))
    assert seen == payloads


@pytest.mark.parametrize("size", [0, -1, -(2**31), 101, 2**31 - 1])
def test_impossible_sizes_are_errors_with_the_first_bytes(size: int) -> None:
    buffer = FrameBuffer(Scratch(), 100)
    with pytest.raises(FrameError) as error:
        feed(buffer, struct.pack(">i", size) + b"junk")
    assert error.value.size == size
    assert error.value.prefix == struct.pack(">i", size) + b"junk"
    assert buffer.has_frame()  # still there: every call raises it


def test_the_largest_size_passes() -> None:
    assert feed(FrameBuffer(Scratch(16), 100), frame(b"a" * 100)) == [b"a" * 100]


def test_memory_grows_with_what_arrived_and_not_with_what_was_declared() -> None:
    buffer = FrameBuffer(Scratch(1024), 100 << 20)
    assert feed(buffer, struct.pack(">i", 100 << 20)) == []
    assert buffer.capacity_bytes <= 4096
    assert feed(buffer, b"x" * 100_000) == []
    assert buffer.capacity_bytes <= 4 * 100_000


def test_a_large_frame_ends_in_a_buffer_of_its_size_which_is_freed_after_it() -> None:
    size = KEEP_BYTES * 2 + 12345
    buffer = FrameBuffer(Scratch(), 100 << 20)
    assert feed(buffer, struct.pack(">i", size) + b"x" * (size - 1), 65536) == []
    assert buffer.capacity_bytes == 4 + size
    assert feed(buffer, b"y" + frame(b"next")) == [b"x" * (size - 1) + b"y", b"next"]
    assert buffer.capacity_bytes == 0


def test_whole_frames_cost_no_memory_and_are_views_of_the_scratch() -> None:
    scratch = Scratch(64)
    buffer = FrameBuffer(scratch, 100)
    view = buffer.writable()
    assert view.obj is scratch.view.obj
    view[:5] = frame(b"z")
    buffer.received(5)
    whole = buffer.next_frame()
    assert whole is not None and whole.obj is scratch.view.obj
    buffer.settle()
    assert buffer.capacity_bytes == 0


def test_trim_frees_the_buffer_of_a_quiet_connection_but_never_bytes() -> None:
    buffer = FrameBuffer(Scratch(64), 10_000)
    feed(buffer, frame(b"a" * 500)[:200])
    buffer.trim()
    assert buffer.buffered_bytes == 200
    assert feed(buffer, frame(b"a" * 500)[200:]) == [b"a" * 500]
    assert buffer.capacity_bytes > 0
    buffer.trim()
    assert buffer.capacity_bytes == 0
    assert feed(buffer, frame(b"b")) == [b"b"]


def test_push_back_gives_the_frame_again() -> None:
    buffer = FrameBuffer(Scratch(64), 100)
    data = frame(b"first") + frame(b"second")
    buffer.writable()[: len(data)] = data
    buffer.received(len(data))
    whole = buffer.next_frame()
    assert whole is not None
    buffer.push_back(whole)
    buffer.settle()
    assert [bytes(buffer.next_frame() or b""), bytes(buffer.next_frame() or b"")] == [b"first", b"second"]


def test_a_held_view_keeps_its_bytes_when_the_buffer_grows() -> None:
    buffer = FrameBuffer(Scratch(16), 1 << 20)
    feed(buffer, frame(b"a" * 5000)[:4096])  # the own buffer is full
    held = buffer.writable()
    assert feed(buffer, frame(b"a" * 5000)[4096:]) == [b"a" * 5000]
    assert len(held) > 0  # growing did not need to resize an exported buffer
