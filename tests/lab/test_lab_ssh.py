"""A lab board, asked by the ssh and sftp programs of OpenSSH."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from lab.clients import sftp, ssh

from hwbench.testing import lab


def test_status_and_streams(board: lab.VirtualBoard) -> None:
    done = ssh(board, "cat; echo out; echo err >&2; uname -m; exit 7", stdin="in\n")
    assert (done.returncode, done.stdout, done.stderr) == (7, "in\nout\naarch64\n", "err\n")


def test_what_runs_on_after_its_client_is_seen_and_does_not_hold_it(board: lab.VirtualBoard) -> None:
    assert ssh(board, "sleep 77 < /dev/null > /dev/null 2>&1 & echo started").stdout == "started\n"
    assert "sleep 77" in board.processes().values()
    assert board.kill_for_memory("sleep 77") == 1
    assert "sleep 77" not in board.processes().values()


def test_sftp_sees_what_commands_see(board: lab.VirtualBoard, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(bytes(range(256)) * 4096)
    assert sftp(board, tmp_path, f"put {source} /tmp/there", f"get /tmp/there {tmp_path}/back").returncode == 0
    assert (tmp_path / "back").read_bytes() == source.read_bytes()
    assert ssh(board, "wc -c < /tmp/there; rm /tmp/there").stdout == "1048576\n"
    refused = sftp(board, tmp_path, f"put {source} /etc/there")
    assert refused.returncode != 0
    assert "Permission denied" in refused.stderr
    assert sftp(board, tmp_path, f"get {tmp_path}/source {tmp_path}/host").returncode != 0


def test_host_keys(board: lab.VirtualBoard) -> None:
    board.known_hosts.write_text("")
    assert "No ED25519 host key is known" in ssh(board, "true").stderr
    board.trust()
    before = board.fingerprint
    with board.another_host_key():
        assert board.fingerprint != before
        changed = ssh(board, "true")
        assert changed.returncode == 255
        assert "REMOTE HOST IDENTIFICATION HAS CHANGED" in changed.stderr
        assert board.fingerprint in changed.stderr
    assert board.fingerprint == before
    assert ssh(board, "true").returncode == 0


def test_another_key_is_refused(board: lab.VirtualBoard) -> None:
    with lab.jump_host() as other:
        done = ssh(board, "true", identity=other.identity)
    assert done.returncode == 255
    assert "Permission denied (publickey)" in done.stderr


@pytest.mark.parametrize("kind", ["board", "phone"])
def test_no_command_reaches_the_host(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    device = request.getfixturevalue(kind)
    status, _ = device.machine.run(f"kill -0 1 || touch {tmp_path}/x")
    assert status != 0
    assert list(tmp_path.iterdir()) == []


def test_a_jump_host_leads_on_and_runs_nothing(board: lab.VirtualBoard, tmp_path: Path) -> None:
    with lab.jump_host() as jump:
        (tmp_path / "known").write_text(jump.known_hosts_line() + board.known_hosts.read_text())
        (tmp_path / "config").write_text(
            f"Host *\n  User {jump.user}\n  HostName 127.0.0.1\n  BatchMode yes\n  IdentitiesOnly yes\n"
            f"  UserKnownHostsFile {tmp_path}/known\n  StrictHostKeyChecking yes\n"
            f"Host jump\n  Port {jump.port}\n  IdentityFile {jump.identity}\n"
            f"Host board\n  Port {board.options['port']}\n  IdentityFile {board.options['identity']}\n"
            "  ProxyJump jump\n"
        )
        argv = ["ssh", "-F", str(tmp_path / "config")]
        through = subprocess.run([*argv, "board", "uname -m"], capture_output=True, text=True, timeout=60)
        assert (through.stdout, through.returncode) == ("aarch64\n", 0), through.stderr
        assert subprocess.run([*argv, "jump", "true"], capture_output=True, timeout=60).returncode != 0
