"""What every command owes its users: help, ``--json``, a place in the docs, exit statuses, one clear error."""

import importlib
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
import typer.core
from typer.testing import CliRunner

import hwbench.errors
from hwbench.cli.main import app, main
from hwbench.errors import HwbenchError
from hwbench.testing.permissions import obeying_permissions
from hwbench.workspace import Workspace

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
DOCS = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
importlib.import_module("hwbench.cli.commands")

GROUP = typer.main.get_command(app)


def walk(group: typer.core.TyperGroup, before: str = "") -> Iterator[tuple[str, typer.core.TyperCommand]]:
    """Every command with the words that call it; those of a group come after it."""
    for name, command in sorted(group.commands.items()):
        yield before + name, command
        if isinstance(command, typer.core.TyperGroup):
            yield from walk(command, f"{before}{name} ")


COMMANDS = dict(walk(GROUP))
PARAMETERS = [(name, parameter) for name, command in COMMANDS.items() for parameter in command.params]
# What ``--json`` prints at least; scripts rely on these names.
KEYS = {
    "quickstart": "architecture device budget_ms predicted_ms measured_ms top1_fp32 top1_int8 chance model report "
    "seconds",
    "profile": "device target ok failed skipped table seconds",
    "validate": "device networks median_error mape within_5 within_10 spearman coverage nominal device_change",
    "search": "study space budget_ms trials feasible best pareto",
    "train": "checkpoint architecture top1 top5 epochs seconds",
    "export": "model manifest precision runtime delegates undelegated sqnr_db top1_before top1_after bytes",
    "bench": "model device runtime precision threads cache median_ms p90_ms ci95_ms samples emulated",
    "data list": "data",
    "data check": "data ok videos clean classes duration_s codecs sizes counts findings lists seconds",
    "data prepare": "data out form encoder videos skipped bytes original_bytes failed notes seconds",
    "data bench": "data clip rates stages stage_ms seconds",
    "data show": "page data split clip classes videos unreadable",
    "devices list": "devices attached",
    "devices check": "device ok steps aa",
    "devices trust": "device transport host kind fingerprint file known",
    "devices prepare": "device runner folder bytes seconds note",
    "devices add": "device file transport model abi cpus fingerprint emulated",
    "devices show": "device file description transport options threads cpus emulated work_dir fingerprint tables "
    "online reason holder probe state",
    "devices remove": "device removed kept",
}
STATUSES = {0: "done", 1: "unexpected", 2: "usage", 3: "device", 4: "infeasible", 5: "check failed"}


def run(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, list(arguments), prog_name="hwbench")
    return done.exit_code, done.stdout, done.stderr


# How a file says that it has a command.
COMMAND = r"@app\.(command|callback)|add_(command|group)\(\s*(app|program),"


def test_every_command_file_is_registered_in_alphabetical_order() -> None:
    folder = ROOT / "hwbench" / "cli"
    imported = re.findall(r"import hwbench\.cli\.(\w+)", (folder / "commands.py").read_text())
    files = [path for path in folder.rglob("*.py") if re.search(COMMAND, path.read_text())]
    names = {path.relative_to(folder).parts[0].removesuffix(".py") for path in files}
    assert imported == sorted(names - {"app"})


def test_commands_take_the_program_from_where_nothing_loads_them() -> None:
    folder = ROOT / "hwbench" / "cli"
    texts = {path.name: path.read_text() for path in folder.rglob("*.py")}
    assert [name for name, text in texts.items() if "hwbench.cli.main" in text] == []
    assert "hwbench.cli" not in texts["app.py"].replace("``hwbench.cli", "")


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command(name: str) -> None:
    status, out, err = run(*name.split(), "--help")
    assert (status, err) == (0, "")
    first = (COMMANDS[name].help or "").splitlines()[0]
    assert len(first) > 20, name
    assert first[0].isupper()
    assert " ".join(first.split()[:4]) in " ".join(out.split())


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_prints_json_and_stands_in_the_docs(name: str) -> None:
    options = {option for parameter in COMMANDS[name].params for option in parameter.opts}
    assert "--json" in options
    assert f"hwbench {name}" in DOCS


@pytest.mark.parametrize(("name", "parameter"), PARAMETERS, ids=lambda p: p if isinstance(p, str) else p.name)
def test_every_option_and_argument_has_help(name: str, parameter: typer.core.TyperOption) -> None:
    if parameter.name == "help":
        return
    text = getattr(parameter, "help", None) or ""
    assert text.strip(), f"{name}: {parameter.opts}"
    assert all(re.fullmatch(r"--[a-z][a-z0-9-]*", option) for option in parameter.opts if option.startswith("-"))


@pytest.mark.parametrize("name", KEYS)
def test_the_keys_of_json_stand_in_the_docs(name: str) -> None:
    (row,) = re.findall(rf"^\| `{name}` \| `([^`]+)` \|$", DOCS, re.MULTILINE)
    assert row.split()[: len(KEYS[name].split())] == KEYS[name].split()


def test_exit_statuses_stand_in_the_docs_and_in_the_help() -> None:
    page = (ROOT / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| (\d+) \| (.+) \|$", page, re.MULTILINE))
    _, out, _ = run("--help")
    epilog = " ".join(out.split())
    for status, words in STATUSES.items():
        assert words in rows[str(status)].lower()
        assert f"{status} " in epilog.partition("Exit status:")[2]


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8", "utf-8:surrogateescape", "ascii:surrogateescape"])
def test_what_stdout_has_no_character_for_is_escaped_and_the_rest_is_printed(encoding: str, tmp_path: Path) -> None:
    description = "K\u00fcche \u03bc"
    Workspace.create(tmp_path)
    card = tmp_path / "profiles/local/device.toml"
    card.write_text(card.read_text(encoding="utf-8").replace("this machine", description), encoding="utf-8")
    command = [sys.executable, "-m", "hwbench", "devices"]
    environment = {**os.environ, "PYTHONIOENCODING": encoding, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    done = subprocess.run(command, capture_output=True, timeout=60, check=False, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    name = encoding.partition(":")[0]
    assert description.encode(name, "backslashreplace") in done.stdout


def test_stdout_that_is_closed_ends_a_command_with_the_documented_status() -> None:
    reading, writing = os.pipe()
    os.close(reading)  # as head does, before all is written
    try:
        command = [sys.executable, "-m", "hwbench", "zoo", "--json"]
        done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")
    page = (ROOT / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
    (row,) = re.findall(rf"^\| {done.returncode} \| (.+) \|$", page, re.MULTILINE)
    assert "without a message, stdout was closed before all was written" in row


@pytest.mark.parametrize("arguments", [["zoo", "--json"], ["zoo"], ["--help"]])
def test_stdout_on_a_full_disk_is_named_as_what_cannot_be_written(arguments: list[str]) -> None:
    command = [sys.executable, "-m", "hwbench", *arguments]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert done.stderr.startswith("hwbench: cannot write stdout: no space is left on the disk; ")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)


def errors() -> list[type[HwbenchError]]:
    found = vars(hwbench.errors).values()
    return [error for error in found if inspect.isclass(error) and issubclass(error, HwbenchError)]


def test_every_error_has_a_documented_status_and_stands_in_the_tree() -> None:
    tree = (hwbench.errors.__doc__ or "").partition("HwbenchError")[2]
    for error in errors():
        assert error.exit_status in STATUSES
        assert error is HwbenchError or f"+-- {error.__name__} " in tree


@pytest.mark.parametrize("error", [error for error in errors() if error.exit_status], ids=lambda e: e.__name__)
def test_an_error_is_one_message_on_stderr_with_its_status(
    error: type[HwbenchError], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise error("expected this, came that; type this")

    monkeypatch.setattr("hwbench.workspace.Workspace.find", fails)
    with pytest.raises(SystemExit) as end:
        main(["devices", "--json"])
    assert end.value.code == error.exit_status
    assert capsys.readouterr() == ("", "hwbench: expected this, came that; type this\n")


@pytest.mark.parametrize("error", [RuntimeError("first\nsecond"), KeyError("x"), OSError(19, "No such device", "f")])
def test_what_nobody_expected_is_status_1_and_one_line_and_debug_shows_where(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("hwbench.workspace.Workspace.find", fails)
    for arguments, traceback in ((["devices"], False), (["devices", "--debug"], True), (["--debug", "devices"], True)):
        with pytest.raises(SystemExit) as end:
            main(arguments)
        out, err = capsys.readouterr()
        assert (end.value.code, out) == (1, "")
        assert ("Traceback" in err) == traceback
        assert err.splitlines()[-1].startswith(f"hwbench: unexpected {type(error).__name__}: ")


@pytest.mark.parametrize(
    ("arguments", "name", "message"),
    [
        (["bench"], "model.pte", "cannot use {}: Permission denied; mend its rights, or those of a folder above it"),
        (["data", "check"], "videos", "{}: cannot be read (Permission denied)"),
    ],
)
def test_what_may_not_be_read_is_not_said_to_be_unwritable(
    arguments: list[str],
    name: str,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(Workspace.create(tmp_path / "workspace").root)
    path = tmp_path / name
    if path.suffix:
        path.write_bytes(b"")
    else:
        path.mkdir()
    path.chmod(0)
    with obeying_permissions(), pytest.raises(SystemExit) as end:
        main([*arguments, str(path)])
    path.chmod(0o755)
    out, err = capsys.readouterr()
    assert (end.value.code, out) == (2, "")
    assert err.splitlines()[-1] == f"hwbench: {message.format(path)}"


@pytest.mark.parametrize(
    "arguments", [["frobnicate"], ["--frobnicate"], ["devices", "--frobnicate"], ["devices", "extra"], ["search"]]
)
def test_a_command_line_that_is_none_is_status_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(arguments)
    out, err = capsys.readouterr()
    assert (end.value.code, out) == (2, "")
    assert "--help" in err
    assert "Traceback" not in err


def test_the_installed_program_and_the_module_are_the_same() -> None:
    for program in ([sys.executable, "-m", "hwbench"], [str(Path(sys.executable).with_name("hwbench"))]):
        done = subprocess.run([*program, "--help"], capture_output=True, text=True, timeout=60, check=True, cwd=ROOT)
        assert "Exit status" in done.stdout
        assert done.stderr == ""
        assert set(re.findall(r"^  ([a-z]+)  ", done.stdout, re.MULTILINE)) >= set(GROUP.commands)


def test_output_that_nobody_reads_is_no_traceback() -> None:
    command = f"{sys.executable} -m hwbench devices --json | head -c 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=True, cwd=ROOT)
    assert done.stdout == "{"
    assert "Traceback" not in done.stderr
