import pytest

from hwbench.devices.places import adb_options, ssh_options
from hwbench.errors import InvalidValue


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("pi", {"host": "pi"}),
        ("pi5.local:2222", {"host": "pi5.local", "port": 2222}),
        ("pi@pi5.local", {"user": "pi", "host": "pi5.local"}),
        ("u0_a1@192.168.1.7:8022", {"user": "u0_a1", "host": "192.168.1.7", "port": 8022}),
        ("me@corp.example@box", {"user": "me@corp.example", "host": "box"}),
        ("[fe80::1%eth0]:22", {"host": "fe80::1%eth0", "port": 22}),
        ("root@[::1]", {"user": "root", "host": "::1"}),
        ("root@::1", {"user": "root", "host": "::1"}),
        ("fe80::1:22", {"host": "fe80::1:22"}),
    ],
)
def test_where_an_ssh_device_is(text, options):
    assert ssh_options(text) == options


@pytest.mark.parametrize(
    "text",
    ["", "@", "pi@", "@pi", "-oProxyCommand=touch x", "pi@-oProxyCommand=x", "-l@pi", "a b", "a\nb", "pi:", "pi:x",
     "pi:0", "pi:65536", "a/b", "a\x1bb", "pi:22:22:x", "[::1", "pi\u202e"],
)  # fmt: skip
def test_what_is_no_place_for_ssh(text):
    with pytest.raises(InvalidValue, match="--ssh: expected"):
        ssh_options(text)


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("", {}),
        ("R58M12ABCDE", {"serial": "R58M12ABCDE"}),
        ("emulator-5554", {"serial": "emulator-5554"}),
        ("adb-R58M-xyz._adb-tls-connect._tcp", {"serial": "adb-R58M-xyz._adb-tls-connect._tcp"}),
        ("192.168.1.7:5555", {"host": "192.168.1.7", "port": 5555}),
        ("[::1]:5555", {"host": "::1", "port": 5555}),
    ],
)
def test_where_a_phone_is(text, options):
    assert adb_options(text) == options


@pytest.mark.parametrize("text", ["-s", "a b", "a\n", "host:0", "host:99999", "\x1b[2J", "ä"])
def test_what_is_no_place_for_adb(text):
    with pytest.raises(InvalidValue, match="--adb: expected"):
        adb_options(text)
