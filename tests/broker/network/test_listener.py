"""Connection limits, running out of descriptors, several listeners."""

from __future__ import annotations

import asyncio
import os
import resource
import socket

import pytest

from klamm.broker.network import listener as listener_module
from klamm.broker.network.limits import ListenerLimits, NetworkLimits
from tests.broker.network.harness import node, run, spin, until


def test_an_address_over_its_limit_is_closed_at_once(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with node(NetworkLimits(max_connections_per_ip=2)) as one:
            first, second = await one.connect(), await one.connect()
            assert [await each.ask(b"echo") for each in (first, second)] == [b"echo"] * 2
            assert await (await one.connect()).at_end()
            assert one.network.counters.refused == 1
            first.writer.close()
            await until(lambda: len(one.network.connections) < 2)
            assert await (await one.connect()).ask(b"echo") == b"echo"

    run(main())
    assert "max.connections.per.ip" in caplog.text


def test_an_override_replaces_the_limit_of_an_address() -> None:
    async def main() -> None:
        limits = NetworkLimits(max_connections_per_ip=0, max_connections_per_ip_overrides={"127.0.0.1": 1})
        async with node(limits) as one:
            assert await (await one.connect()).ask(b"echo") == b"echo"
            assert await (await one.connect()).at_end()

    run(main())


@pytest.mark.parametrize(
    ("limits", "listener"),
    [(NetworkLimits(max_connections=2), None), (NetworkLimits(), ListenerLimits(max_connections=2))],
)
def test_a_full_node_or_listener_accepts_again_when_one_leaves(
    limits: NetworkLimits, listener: ListenerLimits | None
) -> None:
    async def main() -> None:
        async with node(limits, listener) as one:
            first, second = await one.connect(), await one.connect()
            assert [await each.ask(b"echo") for each in (first, second)] == [b"echo"] * 2
            third = await one.connect()  # in the kernel's backlog
            third.send(b"echo third")
            await spin()
            assert len(one.network.connections) == 2
            first.writer.close()
            assert await third.receive() == b"echo third"

    run(main())


def test_changed_limits_take_effect() -> None:
    async def main() -> None:
        async with node(NetworkLimits(max_connections=1)) as one:
            first, second = await one.connect(), await one.connect()
            assert await first.ask(b"echo") == b"echo"
            second.send(b"echo 2")
            await spin()
            assert len(one.network.connections) == 1
            one.network.change_limits(NetworkLimits(max_connections=2))
            assert await second.receive() == b"echo 2"

    run(main())


def test_changed_limits_reach_the_listeners() -> None:
    async def main() -> None:
        async with node(listener=ListenerLimits(max_connections=1)) as one:
            first, second = await one.connect(), await one.connect()
            assert await first.ask(b"echo") == b"echo"
            second.send(b"echo 2")
            await spin()
            assert len(one.network.connections) == 1
            one.network.reconfigure({"listener.name.plaintext.max.connections": 2})
            assert await second.receive() == b"echo 2"

    run(main())


def test_an_override_for_a_name_holds_once_it_is_looked_up() -> None:
    async def main() -> None:
        async with node(NetworkLimits(max_connections_per_ip_overrides={"localhost": 1})) as one:
            assert one.network.looking_up is not None
            await one.network.looking_up
            await spin(2)
            assert await (await one.connect()).ask(b"echo") == b"echo"
            assert await (await one.connect()).at_end()

    run(main())


def test_running_out_of_descriptors_pauses_accepting(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listener_module, "PAUSE_S", 0.01)

    async def main() -> None:
        async with node() as one:
            served = await one.connect()
            assert await served.ask(b"echo") == b"echo"
            peers = [socket.socket() for _ in range(3)]
            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            probe = os.dup(0)
            os.close(probe)
            resource.setrlimit(resource.RLIMIT_NOFILE, (probe, hard))
            try:
                for peer in peers:
                    peer.connect(one.listener.address)
                while one.network.counters.accept_errors < 2:
                    assert await served.ask(b"echo") == b"echo"
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            assert await (await one.connect()).ask(b"echo") == b"echo"
            peers[0].settimeout(5)
            assert peers[0].recv(1) == b""  # refused by a close, thanks to the reserve
            for peer in peers:
                peer.close()

    run(main())
    assert "pausing" in caplog.text


def test_a_port_in_use_is_an_error() -> None:
    async def main() -> None:
        async with node() as one:
            with pytest.raises(OSError, match="in use"):
                one.network.listen("OTHER", "127.0.0.1", one.listener.address[1])

    run(main())


def test_several_listeners_share_the_node_limits() -> None:
    async def main() -> None:
        async with node(NetworkLimits(max_connections=1)) as one:
            other = one.network.listen("INTERNAL", "127.0.0.1", 0)
            other.start()
            client = await one.connect()
            assert await client.ask(b"echo") == b"echo"
            reader, writer = await asyncio.open_connection(*other.address)
            await spin()
            assert other.connection_count == 0
            client.writer.close()
            writer.write(b"\0\0\0\4echo")
            assert await reader.readexactly(8) == b"\0\0\0\4echo"
            assert one.connections[-1].listener == "INTERNAL"
            writer.close()

    run(main())


def test_an_empty_host_means_every_address() -> None:
    async def main() -> None:
        async with node() as one:
            everywhere = one.network.listen("ALL", "", 0)
            everywhere.start()
            reader, writer = await asyncio.open_connection("127.0.0.1", everywhere.address[1])
            writer.write(b"\0\0\0\4echo")
            assert await reader.readexactly(8) == b"\0\0\0\4echo"
            assert one.connections[0].peer[0] == "127.0.0.1"
            assert one.connections[0].local_address[0] == "127.0.0.1"
            writer.close()

    run(main())


def test_accepted_sockets_send_at_once() -> None:
    async def main() -> None:
        async with node() as one:
            await (await one.connect()).ask(b"echo")
            channel = one.connections[0]._channel._socket
            assert channel.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert channel.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)

    run(main())


def test_the_last_descriptors_are_left_to_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listener_module, "PAUSE_S", 0.01)

    async def main() -> None:
        async with node() as one:
            served = await one.connect()
            assert await served.ask(b"echo") == b"echo"
            bound = one.listener._descriptor_bound
            one.listener._descriptor_bound = 0
            assert await (await one.connect()).at_end()
            assert await served.ask(b"echo") == b"echo"
            one.listener._descriptor_bound = bound
            await until(lambda: one.listener._accepting)
            assert await (await one.connect()).ask(b"echo") == b"echo"

    run(main())
    assert "the last descriptors are for the log" in caplog.text
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert listener_module.descriptor_bound() <= soft - 32
