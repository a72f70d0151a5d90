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
BOTTOM = {
    *("errors", "units", "registry", "workspace", "printable", "interpreter", "ownership", "durable", "documents"),
    *("toml_fields", "frames", "torchrun", "room", "linear_algebra", "locks", "control_group", "user_folders"),
    *("scratch", "lookup"),
}
LEVELS = (
    BOTTOM,
    {"specs"},
    {"blocks", "models", "data", "runtimes", "devices"},
    {"spaces", "latency", "measure"},
    {"studies", "training", "deploy"},
    {"reports"},
    {"api"},
    {"cli"},
)
LEVEL = {name: level for level, names in enumerate(LEVELS) for name in names}
# Imports between neighbours of one level, and why each is right.
NEIGHBOURS = {
    ("units", "errors"): "a quantity that does not parse is an InvalidValue",
    ("registry", "errors"): "a name that is not bound is an UnknownName",
    ("registry", "printable"): "what a thing of another package raises may say anything",
    ("workspace", "errors"): "a directory that cannot be written is a WorkspaceError",
    ("ownership", "errors"): "what somebody else can change is a WorkspaceError",
    ("workspace", "ownership"): "a workspace that somebody else can change is refused",
    ("workspace", "durable"): "what was written is on the disk, in a folder that is, too",
    ("workspace", "locks"): "a running process locks what it writes: what is left by killed ones is told from it",
    ("workspace", "lookup"): "what a text names may be a table of trainings, or nothing",
    ("workspace", "registry"): "unknown spaces, devices and cards are answered with the nearest known ones",
    ("room", "units"): "a limit is a size",
    ("room", "locks"): "a running process locks what it uses",
    ("room", "errors"): "what is used cannot be told without locks, which is a WorkspaceError",
    ("room", "ownership"): "what lies in a cache is run: only we can write the folder",
    ("interpreter", "control_group"): "a container leaves fewer processors than the machine has",
    ("locks", "errors"): "a file system without locks is a WorkspaceError",
    ("scratch", "locks"): "a running process locks its folder",
    ("torchrun", "errors"): "a process that another one ended says nothing",
    ("toml_fields", "documents"): "a file is bounded before its keys are looked at",
    ("toml_fields", "errors"): "a file that does not validate is an InvalidFile",
    ("toml_fields", "printable"): "what a file says may be anything",
    ("toml_fields", "registry"): "an unknown key is answered with the nearest known ones",
    ("models", "blocks"): "models are made of blocks",
    ("data", "models"): "weights of RAFT, which computes optical flow, are a file of tensors",
}
# What extensions test themselves with; it looks at everything, and only tests look at it.
TESTING = "testing"
# Third-party packages by the packages of ours that may load them, at any depth of a function.
ONLY_IN = {
    "optuna": {"studies", "reports", "spaces"},  # a space draws from Optuna's trial, which is not wrapped
    "sqlalchemy": {"studies"},
    "ray": {"studies"},
    "grpc": {"studies"},
    "optuna_dashboard": {"studies"},
    "plotly": {"reports"},
    "av": {"data"},
    "cv2": {"data"},
    "pyarrow": {"data"},
    "typer": {"cli"},
    "rich": {"cli"},
    "executorch": {"runtimes", "deploy"},
    "onnx": {"runtimes"},
    "onnxruntime": {"runtimes"},
    "onnxscript": {"runtimes"},
    "litert_torch": {"runtimes"},
    "ai_edge_litert": {"runtimes"},
    "ai_edge_quantizer": {"runtimes"},
    "torchao": {"runtimes", "deploy"},
    "paramiko": {"devices"},
    "timm": {"training"},
    "sklearn": {"data", "latency", "studies"},
    "tensorboard": {"training"},
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
        ("specs", "def f():\n    from hwbench.studies import study\n", True),
        ("specs", "if TYPE_CHECKING:\n    import hwbench.models\n", True),
        ("runtimes", "from hwbench.models import network\n", True),
        ("cli", "from hwbench.testing import fakes\n", True),
        ("cli", "from hwbench import studies\n", False),
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


def running(node: ast.AST) -> Iterator[ast.AST]:
    """What stands below a node, without what is for type checkers alone."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING"):
            continue
        yield child
        yield from running(child)


def module_name(path: Path) -> str:
    """``hwbench.cli.main`` of a file; of an ``__init__.py`` its package."""
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


def imports_by_module() -> dict[str, set[str]]:
    """Module of ours -> those that its file imports, also inside functions.

    A package stands for its ``__init__.py``: a file that takes a name from its own package is in a circle with it where
    that re-exports the file.
    """
    files = {module_name(path): ast.parse(path.read_text(encoding="utf-8")) for path in modules()}
    graph: dict[str, set[str]] = {name: set() for name in files}
    for name, tree in files.items():
        for node in running(tree):
            if isinstance(node, ast.Import):
                graph[name] |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                parts = {f"{node.module}.{alias.name}" for alias in node.names}
                graph[name] |= {part if part in files else str(node.module) for part in parts}
    return {name: (found - {name}) & files.keys() for name, found in graph.items()}


def reached_from(start: str, graph: dict[str, set[str]]) -> set[str]:
    reached: set[str] = set()
    waiting = [*graph[start]]
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += graph[name]
    return reached


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """The sets of modules that all reach each other."""
    reached = {name: reached_from(name, graph) for name in graph}
    rings = {frozenset(other for other in names if name in reached[other]) for name, names in reached.items()}
    return sorted(sorted(ring) for ring in rings if ring)


def test_no_circle_between_files() -> None:
    assert circles(imports_by_module()) == []


@pytest.mark.parametrize(
    ("first", "second", "bad"),
    [
        ("from hwbench.data.b import x\n", "def f():\n    from hwbench.data.a import y\n", True),
        ("import hwbench.data.b\n", "from hwbench.data import a\n", True),
        ("from hwbench.data import x\n", "", True),  # the package takes it from here
        ("from hwbench.data.b import x\n", "if TYPE_CHECKING:\n    from hwbench.data.a import y\n", False),
        ("from hwbench.data.b import x\n", "from hwbench.units import y\n", False),
    ],
)
def test_the_test_of_circles_can_fail(
    first: str, second: str, bad: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "hwbench" / "data"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("from hwbench.data.a import x\n")
    (folder / "a.py").write_text(first)
    (folder / "b.py").write_text(second)
    monkeypatch.setattr(sys.modules[__name__], "PACKAGE", tmp_path / "hwbench")
    assert bool(circles(imports_by_module())) == bad


# Names of more than one class of hwbench, and why each is right.
SAME_NAMES = {
    "FloatFunctional": "torch's own where it has one, else ours of the same form (hwbench/blocks/functional.py)",
}


def classes_by_name() -> dict[str, list[str]]:
    """Name of a class -> the places where one is called so, private ones included."""
    places: dict[str, list[str]] = {}
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(f"{path.relative_to(PACKAGE.parent)}:{node.lineno}")
    return places


def test_one_class_name_stands_for_one_thing() -> None:
    twice = {name: places for name, places in classes_by_name().items() if len(places) > 1}
    assert {name: places for name, places in twice.items() if name not in SAME_NAMES} == {}
    assert set(SAME_NAMES) <= set(twice)  # no exception is left over


def test_the_test_of_class_names_can_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.py").write_text("class Twice:\n    pass\n")
    monkeypatch.setattr(sys.modules[__name__], "PACKAGE", tmp_path)
    with pytest.raises(AssertionError):
        test_one_class_name_stands_for_one_thing()


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


def test_commands_parse_call_and_print() -> None:
    """What a command does stands in the API, where other programs find it."""
    lines = sum(path.read_text(encoding="utf-8").count("\n") for path in (PACKAGE / "cli").rglob("*.py"))
    assert lines <= 2000


def test_every_package_says_what_it_is() -> None:
    packages = sorted({path.parent for path in modules()})
    silent = [
        str(folder.relative_to(ROOT))
        for folder in packages
        if not (folder / "__init__.py").is_file()
        or not ast.get_docstring(ast.parse((folder / "__init__.py").read_text()))
    ]
    assert silent == []


HEAVY = (
    "torch",
    "torchvision",
    "executorch",
    "torchao",
    "optuna",
    "plotly",
    "av",
    "numpy",
    "pandas",
    "hwbench.studies",
)


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
