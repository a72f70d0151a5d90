"""``hwbench devices`` on a board behind the real sshd and on a phone behind the real adb program."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hwbench.cli.main import main
from hwbench.devices import load_device
from hwbench.testing import lab
from hwbench.workspace import Workspace

STEPS = {"reachable", "shell", "fingerprint", "ABI", "work_dir", "processors", "clocks", "runner"}


class Terminal:
    """Runs commands on devices in a workspace."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as end:
            main(["devices", *words])
        out, err = self._capsys.readouterr()
        assert "Traceback" not in err
        return int(end.value.code or 0), out, err

    def json(self, *words: str, status: int = 0) -> dict[str, object]:
        got, out, err = self(*words, "--json")
        assert got == status, err
        return dict(json.loads(out))


def settle(folder: Path, patch: pytest.MonkeyPatch) -> Workspace:
    """A workspace that is the current folder, and a home without keys and configuration."""
    made = Workspace.create(folder / "bench")
    (folder / "home").mkdir()
    patch.setenv("XDG_CACHE_HOME", os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache"))
    patch.setenv("HOME", str(folder / "home"))
    patch.delenv("SSH_AUTH_SOCK", raising=False)
    patch.chdir(made.root)
    return made


def added(folder: Path, *words: str) -> Path:
    """The folder of a device that was added in a workspace of its own."""
    with pytest.MonkeyPatch.context() as patch:
        workspace = settle(folder, patch)
        with pytest.raises(SystemExit) as end:
            main(["devices", "add", *words])
        assert not end.value.code
        return workspace.device(words[0]).parent


@pytest.fixture
def workspace(tmp_path: Path, runner_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """Empty but for the files that come with hwbench; runners for other machines are shared."""
    made = settle(tmp_path, monkeypatch)
    made.cache.symlink_to(runner_cache)
    return made


@pytest.fixture
def run(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(capsys)


def ssh(board: lab.VirtualBoard) -> list[str]:
    """How the board is typed."""
    options = board.options
    place = f"{options['user']}@{options['host']}:{options['port']}"
    return ["--ssh", place, "--identity", str(options["identity"])]


@pytest.fixture(scope="module")
def pi_folder(board: lab.VirtualBoard, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return added(tmp_path_factory.mktemp("pi"), "pi", *ssh(board), "--fingerprint", board.fingerprint)


@pytest.fixture
def pi(pi_folder: Path, workspace: Workspace) -> str:
    """The board, added."""
    shutil.copytree(pi_folder, workspace.root / "profiles" / "pi")
    return "pi"


# ---------------------------------------------------------------- a board over ssh


def test_an_unknown_host_key_is_refused_with_the_fingerprint_and_the_command(
    board: lab.VirtualBoard, run: Terminal, workspace: Workspace
) -> None:
    status, out, err = run("add", "pi", *ssh(board))
    assert (status, out) == (3, "")
    assert f"hwbench devices add pi {' '.join(ssh(board))} --fingerprint {board.fingerprint}" in err
    status, out, err = run("add", "pi", *ssh(board), "--fingerprint", "SHA256:other")
    assert (status, out) == (3, "")
    assert "expected the fingerprint SHA256:other" in err
    assert board.fingerprint in err
    assert "pi" not in workspace.names("profiles")


def test_a_board_is_added_shown_and_removed(
    board: lab.VirtualBoard, run: Terminal, workspace: Workspace, pi: str
) -> None:
    device = load_device(workspace, pi)
    assert device.emulated  # although nobody said so
    assert device.options["port"] == board.options["port"]
    text = workspace.device(pi).read_text()
    assert "4 x Cortex-A76, up to 2.40 GHz, capacity 1024" in text
    shown = run.json("show", pi)
    assert shown["online"]
    assert shown["fingerprint"] == device.fingerprint
    assert {"asimddp", "asimd"} <= set(shown["probe"]["features"])  # type: ignore[index]
    listed = {one["name"]: one for one in run.json("list")["devices"]}  # type: ignore[attr-defined]
    assert (listed[pi]["transport"], listed[pi]["emulated"]) == ("ssh", True)
    removed = run.json("remove", pi, "--yes")["removed"]
    assert set(removed) == {"profiles/pi/device.toml", "profiles/pi/known_hosts"}  # type: ignore[call-overload]
    assert not workspace.root.joinpath("profiles/pi").exists()


def test_a_changed_host_key_is_refused_until_it_is_replaced(board: lab.VirtualBoard, run: Terminal, pi: str) -> None:
    before = board.fingerprint
    assert run.json("trust", pi)["known"]
    with board.another_host_key():
        now = board.fingerprint
        assert now != before
        reached = run.json("check", pi, "--no-aa", status=3)["steps"]
        assert [step["state"] for step in reached] == ["failed"]  # type: ignore[attr-defined]
        found = reached[0]["found"]  # type: ignore[index]
        assert all(word in found for word in ("has changed", before, now, f"hwbench devices trust {pi}"))
        for words in ((), ("--yes",), ("--fingerprint", now)):
            status, out, err = run("trust", pi, *words)
            assert (status, out) == (3, "")
            assert before in err
            assert f"hwbench devices trust {pi} --replace --fingerprint {now}" in err
        status, _, err = run("trust", pi, "--replace", "--fingerprint", before)
        assert (status, f"expected the fingerprint {before}" in err) == (3, True)
        values = run.json("trust", pi, "--replace", "--fingerprint", now)
        assert (values["fingerprint"], values["known"]) == (now, False)
        assert run.json("show", pi)["online"]


def test_a_key_that_is_forgotten_is_trusted_again(
    board: lab.VirtualBoard, run: Terminal, workspace: Workspace, pi: str
) -> None:
    keys = workspace.device(pi).with_name("known_hosts")
    keys.unlink()
    shown = run.json("show", pi)
    assert not shown["online"]
    assert f"hwbench devices trust {pi}" in str(shown["reason"])
    status, out, err = run("trust", pi)
    assert (status, out) == (3, "")
    assert f"hwbench devices trust {pi} --fingerprint {board.fingerprint}" in err
    assert not keys.exists()
    status, _, err = run("trust", pi, "--yes")
    assert (status, f"next: hwbench devices check {pi}" in err) == (0, True)
    assert run.json("show", pi)["online"]


@pytest.mark.long
def test_a_board_is_prepared(run: Terminal, pi: str) -> None:
    prepared = run.json("prepare", pi)
    assert str(prepared["runner"]).startswith("native")
    assert str(prepared["folder"]).startswith("/tmp/hwbench/")


def test_what_is_wrong_with_a_board_is_said_with_what_mends_it(
    board: lab.VirtualBoard, run: Terminal, workspace: Workspace, pi: str
) -> None:
    path = workspace.device(pi)
    text = path.read_text()
    path.write_text(text.replace('work_dir = "/tmp/hwbench"', 'work_dir = "/proc/hwbench"'))
    board.machine.set_temperature(99)
    try:
        checked = run.json("check", pi, "--no-aa", status=3)
    finally:
        board.machine.set_temperature(30)
    steps = {step["name"]: step for step in checked["steps"]}  # type: ignore[attr-defined]
    failed = {name for name, step in steps.items() if step["state"] == "failed"}
    assert set(steps) >= STEPS - {"runner"}
    assert steps["ABI"]["found"] == "aarch64, runs programs for aarch64"
    assert failed >= {"work_dir", "heat"}
    assert 'work_dir = "~/hwbench"' in steps["work_dir"]["advice"]
    assert "runner" not in steps


# ---------------------------------------------------------------- a phone over adb


@pytest.fixture
def plugged(phone: lab.VirtualPhone) -> Iterator[lab.VirtualPhone]:
    phone.connect()
    yield phone
    phone.machine.set_property("ro.product.model", "lab phone")


def test_a_phone_is_listed_with_the_command_that_adds_it(plugged: lab.VirtualPhone, run: Terminal) -> None:
    (new,) = run.json("list")["attached"]  # type: ignore[misc]
    name = str(new["add"]).split()[3]
    assert new["add"] == f"hwbench devices add {name} --adb {plugged.serial}"
    assert f"attached: {plugged.serial}" in run("list")[2]
    status, _, err = run(*str(new["add"]).split()[2:])
    assert status == 0, err
    assert run.json("list")["attached"] == []
    assert run.json("show", name)["probe"]["abi"] == "arm64-v8a"  # type: ignore[index]


def test_the_only_phone_is_meant_without_a_serial(
    plugged: lab.VirtualPhone, run: Terminal, workspace: Workspace
) -> None:
    values = run.json("add", "phone", "--adb")
    device = load_device(workspace, "phone")
    assert (values["abi"], device.options, device.work_dir) == ("arm64-v8a", {}, "/data/local/tmp/hwbench")
    assert device.unit
    # the device file that ships is about another model
    status, out, err = run("check", "s9", "--no-aa")
    assert (status, "SM-G960F" in out) == (3, True), err


@pytest.fixture(scope="module")
def phone_folder(phone: lab.VirtualPhone, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return added(tmp_path_factory.mktemp("phone"), "phone", "--adb", phone.serial)


@pytest.fixture
def droid(plugged: lab.VirtualPhone, phone_folder: Path, workspace: Workspace) -> lab.VirtualPhone:
    """The phone, added as ``phone``."""
    shutil.copytree(phone_folder, workspace.root / "profiles" / "phone")
    return plugged


@pytest.mark.long
def test_a_phone_is_checked_with_a_test_of_equal_models(droid: lab.VirtualPhone, run: Terminal) -> None:
    checked = run.json("check", "phone", "--pairs", "2")
    steps = {step["name"]: step for step in checked["steps"]}  # type: ignore[attr-defined]
    assert set(steps) >= {*STEPS, "battery", "heat", "A/A test"}
    aa = checked["aa"]
    assert (aa["pairs"], aa["ok"]) == (2, steps["A/A test"]["state"] == "ok")  # type: ignore[index]
    assert aa["median_ms"] > 0  # type: ignore[index]


def test_an_updated_phone_is_noticed(droid: lab.VirtualPhone, run: Terminal, workspace: Workspace) -> None:
    before = load_device(workspace, "phone").fingerprint
    droid.machine.set_property("ro.product.model", "lab phone 2")
    checked = run.json("check", "phone", "--no-aa", status=3)
    steps = {step["name"]: step for step in checked["steps"]}  # type: ignore[attr-defined]
    assert f"expected fingerprint {before}" in steps["fingerprint"]["found"]
    assert "runner" not in steps
    assert run("add", "phone", "--force")[0] == 0
    assert load_device(workspace, "phone").fingerprint not in ("", before)


def test_what_a_phone_says_of_itself_cannot_forge_its_file(
    plugged: lab.VirtualPhone, run: Terminal, workspace: Workspace
) -> None:
    hostile = 'x"; emulated = false #\x1b[2J\u202e`touch forged` $(touch forged)'
    plugged.machine.set_property("ro.product.model", hostile)
    status, out, err = run("add", "phone", "--adb", plugged.serial)
    assert status == 0, err
    device = load_device(workspace, "phone")
    assert device.emulated
    assert set(device.options) == {"host", "port"}
    assert "\x1b" not in out + err + workspace.device("phone").read_text()
    assert run("show", "phone")[0] == 0
    assert "\x1b" not in run("list")[1]
    assert list(workspace.root.rglob("forged")) == []


def test_a_phone_that_has_not_allowed_this_computer(droid: lab.VirtualPhone, run: Terminal) -> None:
    assert run.json("trust", "phone")["host"] is None
    droid.disconnect()
    droid.adbd.unauthorise()
    try:
        (step,) = run.json("check", "phone", "--no-aa", status=3)["steps"]  # type: ignore[misc]
        assert 'accept the dialog "Allow USB debugging?"' in step["found"]
        droid.connect()
        assert run.json("list")["attached"] == []
    finally:
        droid.disconnect()
        droid.adbd.authorise()
        droid.connect()


# ---------------------------------------------------------------- virtual devices


@pytest.mark.usefixtures("laboratory")
@pytest.mark.parametrize("over", ["ssh"])
def test_a_virtual_device_lives_until_it_is_removed(run: Terminal, workspace: Workspace, over: str) -> None:
    values = run.json("add", "lab", "--virtual", "--over", over)
    try:
        assert (values["transport"], values["emulated"]) == (over, True)
        assert run.json("show", "lab")["online"]
        record = workspace.root / ".hwbench" / "labs" / "lab.json"
        process = Path(f"/proc/{json.loads(record.read_text())['pid']}")
        assert process.exists()
        os.kill(int(process.name), 9)
        while b"serve" in (process / "cmdline").read_bytes():
            time.sleep(0.02)
        (step,) = run.json("check", "lab", "--no-aa", status=3)["steps"]  # type: ignore[misc]
        assert "hwbench devices add lab --virtual --force" in step["advice"]
        assert run("add", "lab", "--virtual", "--over", over, "--force")[0] == 0
        process = Path(f"/proc/{json.loads(record.read_text())['pid']}")
        assert process.exists()
    finally:
        status, _, err = run("remove", "lab", "--yes")
    assert (status, "was ended" in err) == (0, True)
    assert not process.exists()
    assert not record.exists()


def test_how_a_virtual_device_is_reached(run: Terminal, workspace: Workspace) -> None:
    status, out, err = run("add", "lab", "--virtual", "--over", "usb")
    assert (status, out) == (2, "")
    assert "--over: expected ssh or adb, got 'usb'" in err
