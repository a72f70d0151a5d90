import base64
import hashlib
import hmac
import subprocess

import pytest

from hwbench.devices.known_hosts import HostKey, host_name, known, record

DATA = b"\x00\x00\x00\x0bssh-ed25519" + bytes(36)
KEY = HostKey("board", "ssh-ed25519", DATA)
OTHER = HostKey("board", "ssh-ed25519", DATA[:-1] + b"x")
TEXT = f"ssh-ed25519 {base64.b64encode(DATA).decode()}"


def hashed(name):
    salt = b"0123456789abcdef0123"
    digest = hmac.new(salt, name.encode(), hashlib.sha1).digest()
    return f"|1|{base64.b64encode(salt).decode()}|{base64.b64encode(digest).decode()}"


@pytest.mark.parametrize(
    ("hosts", "host", "found"),
    [
        ("board", "board", True),
        ("a,board,b", "board", True),
        ("BOARD", "board", True),
        ("boar?", "board", True),
        ("*.local", "pi5.local", True),
        ("*,!board", "board", False),
        ("[board]:2222", "[board]:2222", True),
        ("[board]:2222", "b:2222", False),
        ("[board]:*", "[board]:2222", True),
        ("board", "[board]:2222", False),
        (hashed("board"), "board", True),
        (hashed("[board]:2222"), "[board]:2222", True),
        (hashed("board"), "boare", False),
        ("|1|nonsense", "board", False),
        ("|1|a|b|c", "board", False),
    ],
)
def test_names(tmp_path, hosts, host, found):
    file = tmp_path / "known_hosts"
    file.write_text(f"# board {TEXT}\n\n{hosts} {TEXT} a comment\nboard ssh-ed25519\nboard ssh-ed25519 !!!\n")
    keys = known(host, [tmp_path / "none", file]).keys
    assert keys == ({HostKey(host, "ssh-ed25519", DATA): f"{file}:3"} if found else {})


def test_markers(tmp_path):
    file = tmp_path / "known_hosts"
    file.write_text(f"@revoked * {TEXT}\n@cert-authority * {TEXT}\n")
    assert known("board", [file]) == ({}, {DATA})


def test_ports():
    assert (host_name("Board", 22), host_name("board", 2222)) == ("board", "[board]:2222")


def test_a_key_takes_the_place_of_what_was_said_about_its_host(tmp_path):
    file = tmp_path / "new" / "known_hosts"
    record(file, KEY)
    file.write_text(f"# mine\nother {TEXT}\n{file.read_text()}")
    record(file, OTHER)
    assert list(known("board", [file]).keys) == [OTHER]
    assert list(known("other", [file]).keys) == [HostKey("other", "ssh-ed25519", DATA)]
    assert file.read_text().startswith("# mine\nother ")


def test_the_fingerprint_is_that_of_ssh_keygen(tmp_path):
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "key")], check=True)
    kind, data = (tmp_path / "key.pub").read_text().split()[:2]
    said = subprocess.run(["ssh-keygen", "-lf", str(tmp_path / "key")], capture_output=True, text=True, check=True)
    assert HostKey("board", kind, base64.b64decode(data)).sha256 == said.stdout.split()[1]
