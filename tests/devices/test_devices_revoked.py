"""What a file of known hosts says stays said: revoked keys, other hosts of a line, comments; OpenSSH is the judge."""

import base64
import hashlib
import hmac
import os
import subprocess
from dataclasses import replace

import pytest
import sshd as server

from hwbench.devices.base import Address, transports
from hwbench.devices.known_hosts import HostKey, known, record
from hwbench.devices.ssh import fetch_host_key, trust
from hwbench.errors import DeviceError, DeviceUnreachable, WorkspaceError
from hwbench.workspace import Workspace

needs_sshd = pytest.mark.skipif(
    not server.available() and "HWBENCH_LAB_REQUIRED" not in os.environ,
    reason="needs sshd: apt-get install openssh-server",
)


def blob(last):
    return b"\x00\x00\x00\x0bssh-ed25519\x00\x00\x00\x20" + bytes(31) + bytes([last])


OLD, NEW, BAD = (HostKey("board", "ssh-ed25519", blob(last)) for last in range(3))
TEXT = {key: key.line.partition(" ")[2] for key in (OLD, NEW, BAD)}


def hashed(name):
    salt = b"0123456789abcdef0123"
    digest = hmac.new(salt, name.encode(), hashlib.sha1).digest()
    return f"|1|{base64.b64encode(salt).decode()}|{base64.b64encode(digest).decode()}"


def found(file, host):
    """The plain lines of a host, as ssh-keygen finds them."""
    said = subprocess.run(["ssh-keygen", "-F", host, "-f", str(file)], capture_output=True, text=True).stdout
    plain = (line.split() for line in said.split("\n") if line and line[0] not in "#@")
    return [words[1:3] for words in plain if words[2] != "no-base64"]


def test_19_15_trust_changes_what_is_said_about_one_host_and_nothing_else(tmp_path):
    file = tmp_path / "known_hosts"
    kept = [
        b"# the laboratory, \xff\xfe K\xe4fer\n",
        b"\n",
        f"@revoked * {TEXT[BAD]} stolen\n".encode(),
        f"@revoked board {TEXT[OLD]}\n".encode(),
        f"@cert-authority board,*.local {TEXT[OLD]}\n".encode(),
        f"{hashed('other')} {TEXT[OLD]}\n".encode(),
        f"  other\t{TEXT[OLD]}  its\x0ccomment\x85 \r\n".encode(),
        b"board ssh-ed25519 no-base64\n",
        b"@unheard board ssh-ed25519 AAAA\n",
    ]
    gone = [f"board {TEXT[OLD]}\n".encode(), f"{hashed('board')} {TEXT[OLD]}\n".encode()]
    shared = f" alpha,BOARD,board.local,192.168.1.7\t{TEXT[OLD]} board board\n".encode()
    pattern = f"boar?,*.local {TEXT[OLD]}".encode()  # and no end of the line
    file.write_bytes(b"".join([*kept[:4], gone[0], shared, *kept[4:], gone[1], pattern]))
    record(file, NEW)
    assert file.read_bytes() == b"".join(
        [
            *kept[:4],
            f" alpha,board.local,192.168.1.7\t{TEXT[OLD]} board board\n".encode(),
            *kept[4:],
            f"boar?,*.local,!board {TEXT[OLD]}\n".encode(),
            f"board {TEXT[NEW]}\n".encode(),
        ]
    )
    assert found(file, "board") == [TEXT[NEW].split()]
    for other in ("alpha", "board.local", "192.168.1.7", "other", "boars", "pi5.local"):
        assert found(file, other), other
    before = file.read_bytes()
    record(file, NEW)
    assert file.read_bytes() == before, "twice is once"
    assert known("board", [file]).revoked == {BAD.data, OLD.data}


def test_19_15_a_file_that_cannot_be_read_is_not_written_over(tmp_path):
    folder = tmp_path / "known_hosts"
    folder.mkdir()
    with pytest.raises(WorkspaceError, match=r"cannot read .*known_hosts, so nothing is recorded"):
        record(folder, NEW)


def test_19_15_a_link_stays_a_link_and_modes_stay(tmp_path):
    (tmp_path / "real").write_text(f"other {TEXT[OLD]}\n")
    (tmp_path / "real").chmod(0o600)
    (tmp_path / "link").symlink_to("real")
    record(tmp_path / "link", NEW)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "real").read_text() == f"other {TEXT[OLD]}\n{NEW.line}\n"


@pytest.mark.parametrize("hosts", ["board", "*", "a,board", "BOARD", hashed("board")])
def test_19_15_a_revoked_key_is_not_recorded(tmp_path, hosts):
    own, users = tmp_path / "own", tmp_path / "users"
    users.write_text(f"@revoked {hosts} {TEXT[BAD]}\n")
    for path, others in ((own, [users]), (users, [])):
        with pytest.raises(DeviceError, match=r"SHA256:.* is marked @revoked; nothing is recorded"):
            record(path, BAD, others)
        with pytest.raises(DeviceError, match="@revoked"):
            record(path, replace(BAD, host="[board]:2222"), others) if "|" not in hosts else record(path, BAD, others)
    assert not own.exists()
    assert users.read_text() == f"@revoked {hosts} {TEXT[BAD]}\n"
    record(own, NEW, [users])


@pytest.fixture(scope="module")
def sshd(tmp_path_factory):
    sshd = server.Sshd(tmp_path_factory.mktemp("sshd") / "server")
    sshd.known()
    yield sshd
    sshd.stop()


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """No test reads the keys, the configuration or the agent of who runs it."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)


# Lines with H, the host with its port; K, its key; X, another one; M, H as a hash. What ssh and we make of them.
FILES = {
    "H K": True,
    "a,H,b K": True,
    "M K": True,
    "H K\r": True,
    "@revoked H X\nH K": True,
    "@revoked *,!H K\nH K": True,
    "H K\n@revoked H K": False,
    "@revoked * K why\nH K": False,
    "@revoked a,H K\r\nH K": False,
    "H K\n@revoked M K": False,
    "@cert-authority H K": False,
    "other X a comment\x0cH K": False,
    "H X": False,
}


@needs_sshd
@pytest.mark.parametrize("text", FILES, ids=range(len(FILES)))
def test_19_15_what_ssh_makes_of_a_file_we_make_of_it(sshd, tmp_path, text):
    key = " ".join((sshd.folder / "host_key.pub").read_text().split()[:2])
    host = f"[127.0.0.1]:{sshd.port}"
    words = {"H": host, "K": key, "X": TEXT[OLD], "M": hashed(host)}
    file = tmp_path / "known"
    marked = text.replace("@revoked", "@r").replace("@cert-authority", "@c")
    line = "".join(words.get(character, character) for character in marked)
    file.write_text(line.replace("@r ", "@revoked ").replace("@c ", "@cert-authority ") + "\n", newline="")
    options = [f"UserKnownHostsFile={file}", "GlobalKnownHostsFile=none", "StrictHostKeyChecking=yes", "BatchMode=yes"]
    argv = ["ssh", "-F", "none", "-i", str(sshd.key), "-p", str(sshd.port)]
    argv += [word for option in options for word in ("-o", option)]
    status = subprocess.run([*argv, f"{sshd.user}@127.0.0.1", "true"], capture_output=True).returncode
    assert (status == 0) is FILES[text]
    try:
        transports.get("ssh").connect(Address("board", {**sshd.options, "known_hosts": str(file)})).close()
    except DeviceUnreachable:
        assert not FILES[text]
    else:
        assert FILES[text]


@needs_sshd
def test_19_15_a_key_that_is_known_and_revoked_is_neither_used_nor_trusted(sshd, tmp_path, capsys):
    from hwbench.api.devices.trust import HostKeyAnswer, ShownHostKey, approve

    workspace = Workspace(tmp_path / "ws")
    options = {name: value for name, value in sshd.options.items() if name != "known_hosts"}
    there = Address("board", options, workspace=workspace)
    key = fetch_host_key(there)
    trust(there, key)
    transports.get("ssh").connect(there).close()
    text = key.line.partition(" ")[2]
    (tmp_path / ".ssh").mkdir()
    for name in (key.host, "127.0.0.1", "*"):
        (tmp_path / ".ssh" / "known_hosts").write_text(f"@revoked {name} {text}\n")
        with pytest.raises(DeviceUnreachable, match="is revoked"):
            transports.get("ssh").connect(there)
        shown = ShownHostKey.of(there)
        assert (shown.known, shown.revoked) == (False, True)
        with pytest.raises(DeviceError, match="revoked; nothing is recorded"):
            approve(shown, HostKeyAnswer(True, key.sha256, True), "")
        with pytest.raises(DeviceError, match="@revoked; nothing is recorded"):
            trust(there, key)


@needs_sshd
def test_19_15_files_for_all_users_are_those_of_the_configuration(sshd, tmp_path):
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "config").write_text(f"Host *\n  GlobalKnownHostsFile {tmp_path}/all {tmp_path}/all2\n")
    there = Address("board", sshd.options)
    key = fetch_host_key(there)
    transports.get("ssh").connect(there).close()
    (tmp_path / "all2").write_text(f"@revoked {key.line}\n")
    with pytest.raises(DeviceUnreachable, match="is revoked"):
        transports.get("ssh").connect(there)
