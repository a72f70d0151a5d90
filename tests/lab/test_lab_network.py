"""The network in front of a lab device, without a device."""

import socket

from hwbench.testing.lab import VirtualNetwork


def test_a_server_that_is_killed_with_unread_bytes_ends_the_connection():
    with socket.create_server(("127.0.0.1", 0)) as server:
        network = VirtualNetwork(server.getsockname()[1])
        try:
            with socket.create_connection(("127.0.0.1", network.port), timeout=10) as client:
                client.sendall(b"question")
                accepted, _ = server.accept()
                accepted.settimeout(10)
                assert accepted.recv(1) == b"q"
                accepted.close()  # with unread bytes: its side is reset
                assert client.recv(1) == b""
        finally:
            network.close()
