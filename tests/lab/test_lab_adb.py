"""A lab phone, asked by the adb program."""

from __future__ import annotations

import subprocess
from pathlib import Path

from lab.clients import adb, adb_on

from hwbench.testing import lab


def said(done: subprocess.CompletedProcess[str]) -> str:
    return done.stdout + done.stderr


def test_status_and_streams(phone: lab.VirtualPhone) -> None:
    done = adb_on(phone, "shell", "cat; echo out; echo err >&2; uname -m; exit 7", stdin="in\n")
    assert (done.returncode, done.stdout, done.stderr) == (7, "in\nout\naarch64\n", "err\n")
    assert adb_on(phone, "shell", "kill -9 $$").returncode == 128 + 9
    assert adb_on(phone, "exec-out", "getprop ro.product.model").stdout == "lab phone\n"


def test_more_than_a_message_holds(phone: lab.VirtualPhone) -> None:
    text = "0123456789abcde\n" * 70_000
    assert adb_on(phone, "shell", "cat", stdin=text).stdout == text


def test_files(phone: lab.VirtualPhone, tmp_path: Path) -> None:
    source = tmp_path / "with blank and \u0416"
    source.write_bytes(bytes(range(256)) * 4096)
    source.chmod(0o755)
    there = "/data/local/tmp/new/it"
    assert adb_on(phone, "push", str(source), there).returncode == 0
    assert adb_on(phone, "shell", f"stat -c '%s %a' {there}").stdout == "1048576 755\n"
    assert adb_on(phone, "pull", there, str(tmp_path / "back")).returncode == 0
    assert (tmp_path / "back").read_bytes() == source.read_bytes()
    assert "0 files pushed, 1 skipped" in said(adb_on(phone, "push", "--sync", str(source), there))
    refused = adb_on(phone, "push", str(source), "/system/it")
    assert refused.returncode == 1
    assert "remote couldn't create file: Permission denied" in said(refused)
    assert "does not exist" in said(adb_on(phone, "pull", "/nothing", str(tmp_path)))
    adb_on(phone, "shell", "rm -r /data/local/tmp/new")


def test_links_on_the_phone_do_not_lead_to_the_host(phone: lab.VirtualPhone, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    tmp_path.chmod(0o755)
    adb_on(phone, "shell", f"ln -s {tmp_path}/secret /data/local/tmp/link")
    adb_on(phone, "pull", "/data/local/tmp/link", str(tmp_path / "out"))
    assert not (tmp_path / "out").is_file()
    assert adb_on(
        phone, "pull", f"/data/local/tmp/../../../../../..{tmp_path}/secret", str(tmp_path / "out")
    ).returncode
    assert not (tmp_path / "out").is_file()
    adb_on(phone, "shell", "rm /data/local/tmp/link")


def test_several_and_unauthorised(phone: lab.VirtualPhone) -> None:
    with lab.android_phone(serial="OTHER", properties={"ro.product.model": "other"}, authorised=False) as other:
        states = dict(line.split("\t") for line in adb("devices").stdout.splitlines() if "\t" in line)
        assert states == {phone.serial: "device", other.serial: "unauthorized"}
        assert "unauthorized" in adb_on(other, "shell", "true").stderr
        other.adbd.authorise()
        other.disconnect()
        other.connect()
        assert adb_on(other, "shell", "getprop ro.serialno; getprop ro.product.model").stdout == "OTHER\nother\n"
        assert "more than one device" in adb("shell", "true").stderr
    assert adb("shell", "getprop ro.serialno").stdout == "HWLAB0001\n"
