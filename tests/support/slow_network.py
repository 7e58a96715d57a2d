"""A network of some milliseconds between a client and a server: everything that the client sends comes later.

Run as a program it prints the port at which it listens, so that it takes no time of the process that is tested.
"""

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def delayed(port: int, seconds: float) -> Iterator[int]:
    """A port of this machine that leads to another one, with this much time to a server and back."""
    command = [sys.executable, __file__, str(port), str(seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline())
        finally:
            process.kill()


def pump(source: socket.socket, target: socket.socket, seconds: float) -> None:
    try:
        while chunk := source.recv(2**20):
            time.sleep(seconds)
            target.sendall(chunk)
    except OSError:
        pass
    for each in (source, target):
        each.close()


def main(port: int, seconds: float) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        print(server.getsockname()[1], flush=True)
        while True:
            client, _ = server.accept()
            upstream = socket.create_connection(("127.0.0.1", port))
            for one, other, delay in ((client, upstream, seconds), (upstream, client, 0.0)):
                threading.Thread(target=pump, args=(one, other, delay), daemon=True).start()


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
