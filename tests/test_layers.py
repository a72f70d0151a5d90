"""The order of the packages, what importing them loads, and what may not stand in a tracked file."""

import ast
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "hwbench"

# From bottom to top. A module imports from lower levels, and from its own package.
BOTTOM = {"errors", "units", "registry", "workspace", "printable", "interpreter", "ownership", "durable", "documents"}
LEVELS = (
    BOTTOM,
    {"specs"},
    {"blocks", "models", "data", "runtimes", "devices"},
    {"spaces", "latency", "measure"},
    {"search", "train", "deploy"},
    {"report"},
    {"cli"},
)
LEVEL = {name: level for level, names in enumerate(LEVELS) for name in names}
# Imports between neighbours of one level, and why each is right.
NEIGHBOURS = {
    ("units", "errors"): "a quantity that does not parse is an InvalidValue",
    ("registry", "errors"): "a name that is not bound is an UnknownName",
    ("workspace", "errors"): "a directory that cannot be written is a WorkspaceError",
    ("ownership", "errors"): "what somebody else can change is a WorkspaceError",
    ("workspace", "ownership"): "a workspace that somebody else can change is refused",
    ("workspace", "durable"): "what was written is on the disk, in a folder that is, too",
    ("workspace", "registry"): "unknown spaces, devices and cards are answered with the nearest known ones",
    ("models", "blocks"): "models are made of blocks",
}
# What extensions test themselves with; it looks at everything, and only tests look at it.
TESTING = "testing"
# Third-party packages by the packages of ours that may load them, at any depth of a function.
ONLY_IN = {
    "optuna": {"search", "report", "spaces"},  # a space draws from Optuna's trial, which is not wrapped
    "plotly": {"report"},
    "av": {"data"},
    "typer": {"cli"},
    "rich": {"cli"},
    "executorch": {"runtimes", "deploy"},
    "onnx": {"runtimes"},
    "onnxruntime": {"runtimes"},
    "onnxscript": {"runtimes"},
    "torchao": {"runtimes", "deploy"},
    "paramiko": {"devices"},
    "pytorchvideo": set(),  # what tests compare with
    "fvcore": set(),
}
NO_TORCH = {*BOTTOM, "specs", "devices", "latency"}


def modules() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if "__pycache__" not in path.parts)


def imported(path: Path) -> Iterator[tuple[str, int]]:
    """Every module that a file imports, also inside functions and for type checkers, with the line."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            module = node.module or ""
            yield from (
                (f"{module}.{alias.name}" if module == "hwbench" else module, node.lineno) for alias in node.names
            )


def own_imports() -> Iterator[tuple[str, str, str]]:
    """(package, imported package, place) of every import of ours by ours."""
    for path in modules():
        if path.parent == PACKAGE and path.name in ("__init__.py", "__main__.py"):
            continue
        package = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        for name, line in imported(path):
            first, _, rest = name.partition(".")
            if first == "hwbench" and rest and rest != "__version__":
                yield package, rest.partition(".")[0], f"{path.relative_to(ROOT)}:{line}"


def test_every_package_has_a_level() -> None:
    present = {path.stem if path.is_file() else path.name for path in PACKAGE.iterdir() if path.suffix in ("", ".py")}
    present -= {"__init__", "__main__", "__pycache__", "shipped", "py.typed"}
    assert present <= {*LEVEL, TESTING}


def test_imports_go_down_only() -> None:
    wrong = [
        f"{place}: {package} imports {other}"
        for package, other, place in own_imports()
        if package not in (other, TESTING)
        and (other == TESTING or (LEVEL[other] >= LEVEL[package] and (package, other) not in NEIGHBOURS))
    ]
    assert wrong == []


def test_no_exception_is_left_over() -> None:
    used = {(package, other) for package, other, _ in own_imports()}
    assert set(NEIGHBOURS) <= used


@pytest.mark.parametrize(
    ("package", "statement", "bad"),
    [
        ("specs", "def f():\n    from hwbench.search import study\n", True),
        ("specs", "if TYPE_CHECKING:\n    import hwbench.models\n", True),
        ("runtimes", "from hwbench.models import network\n", True),
        ("cli", "from hwbench.testing import fakes\n", True),
        ("cli", "from hwbench import search\n", False),
        ("models", "from hwbench.blocks import build\n", False),
    ],
)
def test_the_layer_test_can_fail(
    package: str, statement: str, bad: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tmp_path / "hwbench" / package / "module.py"
    made.parent.mkdir(parents=True)
    made.write_text(statement)
    monkeypatch.setattr(sys.modules[__name__], "PACKAGE", tmp_path / "hwbench")
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    if bad:
        with pytest.raises(AssertionError):
            test_imports_go_down_only()
    else:
        test_imports_go_down_only()


def test_engines_and_tools_stay_in_their_packages() -> None:
    wrong = []
    for path in modules():
        package = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        for name, line in imported(path) if package != TESTING else ():
            first = name.partition(".")[0]
            if package not in ONLY_IN.get(first, {package}) or (first == "torch" and package in NO_TORCH):
                wrong.append(f"{path.relative_to(ROOT)}:{line}: {name}")
    assert wrong == []


# What runs a TorchScript file, which is a program as any file of a runtime, in the process of a runner.
PROGRAMS = {"hwbench/runtimes/script_model.py": "torch.jit.load"}


def test_nothing_is_unpickled() -> None:
    """No pickle is read, and torch.load comes with weights_only=True. (The exception of pickle may be named.)"""
    wrong = []
    for path in modules():
        allowed = PROGRAMS.get(str(path.relative_to(ROOT)))
        for name, line in imported(path):
            if name.partition(".")[0] in ("cloudpickle", "dill", "joblib", "shelve", "marshal"):
                wrong.append(f"{path.relative_to(ROOT)}:{line}: {name}")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            called, keywords = ast.unparse(node.func), {word.arg: ast.unparse(word.value) for word in node.keywords}
            unsafe = called.startswith("pickle.") or called.endswith((".Unpickler", "torch.jit.load"))
            if (unsafe and called != allowed) or (called == "torch.load" and keywords.get("weights_only") != "True"):
                wrong.append(f"{path.relative_to(ROOT)}:{node.lineno}: {called}")
    assert wrong == []


def test_every_package_says_what_it_is() -> None:
    packages = sorted({path.parent for path in modules()})
    silent = [
        str(folder.relative_to(ROOT))
        for folder in packages
        if not (folder / "__init__.py").is_file()
        or not ast.get_docstring(ast.parse((folder / "__init__.py").read_text()))
    ]
    assert silent == []


HEAVY = ("torch", "torchvision", "executorch", "torchao", "optuna", "plotly", "av", "numpy", "pandas", "hwbench.search")


def loaded(code: str) -> set[str]:
    """The modules of ``HEAVY`` that a fresh process has loaded after ``code``."""
    report = f"\nimport sys\nprint(*[m for m in {HEAVY!r} if m in sys.modules], sep='\\n', file=sys.stderr)"
    command = [sys.executable, "-c", code + report]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=60)
    return set(done.stderr.split())


def test_importing_hwbench_loads_nothing_heavy() -> None:
    assert loaded("import hwbench") == set()


HELP = """
import sys, contextlib, io
from hwbench.cli.main import main
for arguments in (["--help"], ["--version"], *([*words, "--help"] for words in {names!r})):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        main(arguments)
"""


def test_help_of_every_command_loads_nothing_heavy() -> None:
    importlib.import_module("hwbench.cli.commands")
    import typer

    from hwbench.cli.main import app

    commands = typer.main.get_command(app).commands
    below = [[name, other] for name, group in commands.items() for other in getattr(group, "commands", ())]
    names = [*([name] for name in commands), *below]
    assert {"profile", "search", "train", "bench"} <= set(commands)
    assert ["devices", "add"] in names
    assert loaded(HELP.format(names=names)) == set()
    assert loaded("import torch") >= {"torch", "numpy"}  # the check can fail


def tracked() -> list[Path]:
    """The files of the repository, without what a build or a run leaves there."""
    if (ROOT / ".git").exists():
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, timeout=60)
        if listed.returncode == 0:
            return [ROOT / name for name in listed.stdout.split("\0") if name]
    ignored = {".venv", ".hwbench", ".git", "runs", "__pycache__", "build", "dist"}
    return [path for path in ROOT.rglob("*") if path.is_file() and not ignored & set(path.parts)]


# Spelt in pieces, so that this file does not find itself.
FORBIDDEN = {
    "a path of one machine": r"(?<![\w.])/(?:" + "home|root|Users|work" + r")/[\w.-]+",
    "an address of a private registry": r"(?:index-url|extra-index-url|trusted-host)\s*[=\s]",
    "a token": r"(?:ghp_|github_pat_|hf_[A-Za-z]{20}|AKIA[0-9A-Z]{12}|-----BEGIN [A-Z ]*PRIVATE" + " KEY)",
}


def test_no_machine_path_registry_or_token_in_a_tracked_file() -> None:
    wrong = []
    for path in tracked():
        if not path.is_file() or path == Path(__file__).resolve():
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        for what, pattern in FORBIDDEN.items():
            wrong += [f"{path.relative_to(ROOT)}: {what}: {found}" for found in re.findall(pattern, text)]
    assert wrong == []


def test_large_and_built_files_are_not_tracked() -> None:
    large = [str(path) for path in tracked() if path.is_file() and path.stat().st_size > 512 * 1024]
    assert large == []
