"""A bare sendfile loop: the most that this machine can send, with nothing around it.

    python -m bench.bare FILE SIZE

It prints its port, and answers each frame on a connection with the next SIZE bytes of the file.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import sys
import threading

SIZE = struct.Struct(">i")


def serve(connection: socket.socket, file: int, end: int, size: int) -> None:
    head = SIZE.pack(size)
    at = 0
    with contextlib.suppress(ConnectionError):  # the client has disconnected
        while connection.recv(4096):
            connection.send(head, socket.MSG_MORE)
            if at + size > end:
                at = 0
            left = size
            while left:
                sent = os.sendfile(connection.fileno(), file, at, left)
                at, left = at + sent, left - sent


def main() -> None:
    path, size = sys.argv[1], int(sys.argv[2])
    file = os.open(path, os.O_RDONLY)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        while True:
            connection, _ = listener.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            arguments = (connection, file, os.fstat(file).st_size, size)
            threading.Thread(target=serve, args=arguments, daemon=True).start()


if __name__ == "__main__":
    main()
