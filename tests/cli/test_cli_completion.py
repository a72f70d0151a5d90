"""What the tab key completes to, in a real bash."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hwbench.interpreter import python_path
from hwbench.workspace import Workspace

PROGRAM = Path(sys.executable).with_name("hwbench")
# As bash does it at the tab key: a line of words is typed, a line of what it would offer comes out.
ASK = """
eval "$(hwbench --show-completion)"
completed=$(complete -p hwbench | sed 's/.*-F \\([^ ]*\\).*/\\1/')
while IFS= read -r line; do
    IFS=' ' read -r -a COMP_WORDS <<< "$line"
    [[ $line == *' ' ]] && COMP_WORDS+=('')
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    $completed hwbench
    echo "${COMPREPLY[*]}"
done
"""
OFFERED = {
    "hwbench data ch": "check",
    "hwbench search --bu": "--budget",
    "hwbench search --budget 5": "",
    "hwbench search --space mine,x3d-t": "mine,x3d-tiny",
    "hwbench search --device s": "s9",
    "hwbench search --precision f": "fp32 fp16",
    "hwbench search --evaluator fi": "fitted",
    "hwbench search --on-error s": "skip",
    "hwbench profile --runtime open": "openvino",
    "hwbench search --study f": "first",
    "hwbench report f": "first",
    "hwbench report runs/": "",
    "hwbench dashboard f": "first",
    "hwbench scoreboard f": "first",
    "hwbench devices check s": "s9",
    "hwbench devices show s": "s9",
    "hwbench devices prepare s": "s9",
    "hwbench devices trust s": "s9",
    "hwbench devices remove s": "s9",
    "hwbench devices add s": "",
    "hwbench profile diff local s": "s9",
    "hwbench zoo get squ": "squeezetime-r50",
}


def offered(folder: Path, *lines: str) -> list[str]:
    if not PROGRAM.exists():
        pytest.skip("hwbench is not installed as a program")
    environment = os.environ | {"PATH": f"{PROGRAM.parent}:{os.environ['PATH']}"}
    typed = "".join(f"{line}\n" for line in lines)
    done = subprocess.run(
        ["bash", "-c", ASK], cwd=folder, env=environment, input=typed, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.fixture
def folder(tmp_path):
    workspace = Workspace.create(tmp_path / "bench")
    (workspace.studies / "first").mkdir(parents=True)
    (workspace.root / "search_spaces" / "mine.toml").write_text("")
    return workspace.root


def test_a_shell_completes(folder):
    assert dict(zip(OFFERED, offered(folder, *OFFERED), strict=True)) == OFFERED


def test_a_shell_that_completes_makes_no_working_state(tmp_path):
    made = Workspace.create(tmp_path / "bench")
    assert offered(made.root, "hwbench search --study ", "hwbench dashboard ") == ["", ""]
    assert not (made.root / ".hwbench").exists()


@pytest.mark.parametrize("line", ["hwbench devices check ", "hwbench zoo get ", "hwbench report "])
def test_completing_loads_nothing_of_weight(folder, line):
    code = (
        "import sys; from hwbench.cli.main import main\n"
        "try: main()\n"
        "finally: print({'numpy', 'torch', 'optuna'} & {*sys.modules}, file=sys.stderr)"
    )
    typed = {"_HWBENCH_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(line.split()))}
    environment = os.environ | {"PYTHONPATH": python_path()} | typed
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.stderr == "set()\n"
    assert done.stdout.strip()


def test_outside_a_workspace_there_are_the_names_of_hwbench_alone(tmp_path):
    assert offered(tmp_path, "hwbench search --study ", "hwbench search --runtime lit") == ["", "litert"]
