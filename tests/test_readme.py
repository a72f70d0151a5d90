"""The README is true: its commands parse, its Python runs, its names and numbers are those of the package."""

import importlib
import re
import shlex
from pathlib import Path

import pytest
import typer

from hwbench.cli.main import app
from hwbench.devices import transports
from hwbench.devices.device import read_device
from hwbench.spaces.cards import load_card
from hwbench.workspace import Workspace

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


def commands() -> list[str]:
    """Every hwbench command line in the README: of the bash blocks, and complete ones between backquotes."""
    lines = [line.partition("#")[0].strip() for block in blocks("bash") for line in block.splitlines()]
    prose = re.sub(r"^```.*?^```$", "", TEXT, flags=re.MULTILINE | re.DOTALL)
    spans = re.findall(r"`(hwbench [a-z][^`]*)`", prose)
    return [line for line in [*lines, *spans] if line.startswith("hwbench ")]


@pytest.mark.parametrize("line", commands())
def test_a_command_line_parses(line: str) -> None:
    importlib.import_module("hwbench.cli.commands")
    arguments = shlex.split(line)[1:]
    command = typer.main.get_command(app)
    while hasattr(command, "commands") and arguments and not arguments[0].startswith("-"):
        name, *arguments = arguments
        assert name in command.commands, f"hwbench has no command {name}"
        command = command.commands[name]
    with command.make_context(name, arguments):  # a wrong option or value raises
        pass


def test_the_whole_loop_is_shown() -> None:
    shown = {shlex.split(line)[1] for line in commands()}
    assert shown >= {"doctor", "devices", "profile", "validate", "search", "train", "test", "export", "bench", "report"}
    assert shown >= {"quickstart", "init"}


def test_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    named = set(re.findall(r"(?:^|`)make ([a-z]+)", TEXT, re.MULTILINE))
    assert {"quickstart", "test"} <= named
    for target in named:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    assert "make test" in (ROOT / ".ci" / "run").read_text().splitlines()


@pytest.mark.parametrize("block", blocks("python"), ids=lambda block: block.splitlines()[0])
def test_python_runs(block: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    exec(compile(block, "README.md", "exec"), {"__name__": "readme"})


@pytest.mark.parametrize("block", blocks("toml"), ids=lambda block: block.splitlines()[0])
def test_the_device_files_validate(block: str, tmp_path: Path) -> None:
    place = re.match(r"# profiles/(\w+)/device.toml\n", block)
    assert place
    folder = tmp_path / place[1]
    folder.mkdir()
    (folder / "device.toml").write_text(block)
    device = read_device(folder / "device.toml")
    assert device.cpus == ((7, 6, 5, 4) if device.name == "board" else ())
    assert set(device.options) == set(transports.get(device.transport_name).options)


def test_every_device_space_and_zoo_model_is_named_with_its_size() -> None:
    workspace = Workspace(ROOT)
    for name in (*workspace.names("profiles"), *workspace.names("search_spaces")):
        assert f"`{name}`" in TEXT
    for name in workspace.names("zoo"):
        clip = load_card(workspace, name).network().input
        (row,) = [line for line in TEXT.splitlines() if line.startswith("|") and f"`zoo:{name}`" in line]
        assert f"{clip.t} x {clip.h}" in row


def test_named_files_exist() -> None:
    for name in ("LICENSE", "CHANGELOG.md", "constraints.txt", "search_spaces/x3d-tiny.toml"):
        assert name.rpartition("/")[2] in TEXT
        assert (ROOT / name).is_file()


def test_its_lines_are_short_enough_to_be_read() -> None:
    assert max(map(len, (line for line in TEXT.splitlines() if not line.startswith("|")))) <= 120
