"""Ports to listen on that nobody gets in between."""

import pathlib
import random
import socket

from testbed import loopback


def test_ports_are_free_differ_and_are_none_that_connections_get():
    text = pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text()
    first, last = map(int, text.split())
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", loopback.free_port()))
        ports = loopback.free_ports(50)
        assert taken.getsockname()[1] not in ports
    assert len(set(ports)) == 50
    assert not set(ports) & set(range(first, last + 1))


def test_two_processes_with_the_same_seed_choose_differently():
    random.seed(0)
    one = loopback.free_ports(5)
    random.seed(0)
    assert loopback.free_ports(5) != one
