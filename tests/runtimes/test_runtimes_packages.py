"""Runtimes of other packages that do not load, or whose files end like those of another runtime."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hwbench.interpreter import python_path
from hwbench.workspace import Workspace

RUNTIME = """
from hwbench.runtimes import Capabilities, FileFormat, Runtime

class Other(Runtime):
    name = "{name}"
    capabilities = Capabilities(("torch",), FileFormat("{suffix}"), "{name}_runtime:Model")
"""
MODEL = "zoo:x3d-xs"
CLI = "import sys; from hwbench.cli.main import main; sys.exit(main(sys.argv[1:]))"


class Site:
    """A folder of installed packages, and commands that see them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "site"
        self._workspace = Workspace.create(folder / "bench")

    def offer(self, name: str, source: str, package: str) -> None:
        about = self._folder / f"{package.replace('-', '_')}-1.0.dist-info"
        about.mkdir(parents=True)
        (self._folder / f"{name}_runtime.py").write_text(source)
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (about / "entry_points.txt").write_text(f"[hwbench.runtimes]\n{name} = {name}_runtime:Other\n")

    def run(self, code: str, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-P", "-W", "error", "-c", code, *words],
            cwd=self._workspace.root, env={**os.environ, "PYTHONPATH": f"{self._folder}{os.pathsep}{python_path()}"},
            capture_output=True, text=True, timeout=120,
        )  # fmt: skip

    def printed(self, code: str) -> list[str]:
        done = self.run(f"from pathlib import Path\nfrom hwbench.runtimes import *\n{code}")
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    def told(self, *words: str) -> str:
        """What a command that ends with a wrong request says."""
        done = self.run(CLI, *words)
        assert (done.returncode, "Traceback" in done.stderr) == (2, False), done.stderr
        return " ".join(done.stderr.replace("│", " ").split())


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


@pytest.mark.parametrize("name", ["aaa", "zzz"])
def test_a_file_of_our_own_keeps_its_loader(site: Site, name: str) -> None:
    site.offer(name, RUNTIME.format(name=name, suffix=".ts"), "ts-slow")
    assert site.printed("print(of_file(Path('model.ts')), *exporting()); print(suffixes())") == [
        "torchscript executorch litert onnx openvino torchscript",
        ".pte, .tflite, .onnx, .ovz or .ts",
    ]
    loader = "from hwbench.runtimes.python_models import loader_of; print(loader_of('model.ts').__module__)"
    assert site.printed(loader) == ["hwbench.runtimes.script_model"]


@pytest.mark.parametrize(
    "words",
    [
        ("bench", MODEL),
        ("export", MODEL, "--weights", "random", "--precision", "fp32", "--out", "out"),
        ("profile", "--device", "local", "--space", "x3d-tiny", "--precision", "fp32"),
    ],
)
def test_a_runtime_with_an_ending_of_our_own_is_refused_by_name(site: Site, words: tuple[str, ...]) -> None:
    site.offer("zzz", RUNTIME.format(name="zzz", suffix=".ts"), "ts-slow")
    said = site.told(*words, "--runtime", "zzz")
    assert "runtime 'zzz' of the package ts-slow: its files end in .ts, as those of the runtime 'torchscript'" in said
    assert "of hwbench do" in said
    assert "python -m pip uninstall ts-slow" in said


def test_two_packages_with_one_ending_are_both_refused(site: Site, tmp_path: Path) -> None:
    for name in ("aaa", "zzz"):
        site.offer(name, RUNTIME.format(name=name, suffix=".mine"), f"{name}-package")
    file = tmp_path / "model.mine"
    file.write_text("a file\n")
    said = site.told("bench", str(file))
    assert "'aaa' of the package aaa-package: its files end in .mine, as those of the runtime 'zzz'" in said
    assert "of the package zzz-package do" in said
    refused = "try:\n    get('zzz')\nexcept Exception as error:\n    print(type(error).__name__, error)"
    (line,) = site.printed(refused)
    assert line.startswith("InvalidValue runtime 'zzz' of the package zzz-package: its files end in .mine")
    assert "of the runtime 'aaa' of the package aaa-package do" in line
    assert site.printed("print(*exporting())") == ["executorch litert onnx openvino torchscript"]


@pytest.mark.parametrize("name", ["aaa", "zzz"])
def test_a_package_that_does_not_load_stops_its_own_name_only(site: Site, name: str) -> None:
    site.offer(name, "from hwbench.runtimes import Gone\n", "oldplugs")
    site.offer("good", RUNTIME.format(name="good", suffix=".good"), "good-package")
    own = ["executorch", "good", "litert", "onnx", "openvino", "torchscript"]
    files = "for end in ('pte', 'good', 'none'): print(of_file(Path('a.' + end)))"
    assert site.printed(f"print(*exporting())\n{files}") == [" ".join(own), "executorch", "good", "None"]
    start = "from hwbench.runtimes.python_runner import *\nprint(next(RunnerSession(Options(list='x')).answers()))"
    assert "start" in site.printed(start)[0]
    refusals = """
from hwbench.specs import Precision
for refuse in (get("onnx").require_streams, lambda: get("onnx").require_precision(Precision.FP16)):
    try:
        refuse()
    except Exception as error:
        print(type(error).__name__, error)
"""
    for line in site.printed(refusals):
        assert line.startswith("UnsupportedModule the onnx runtime builds")
        assert "choose another engine: --runtime executorch" in line
    said = site.told("bench", MODEL, "--runtime", name)
    assert f"runtime '{name}' of the package oldplugs does not load" in said


def test_a_version_that_raises_leaves_the_other_engines_alone(site: Site) -> None:
    code = RUNTIME.format(name="broken", suffix=".broken").replace('"broken_runtime:Model"', '"m:M", streams=True')
    version = "\n    def version(self):\n        raise ImportError('libengine.so is missing')\n"
    site.offer("broken", code + version, "broken-package")
    refused = """
from hwbench.api.bench_engines import engines_for
from hwbench.devices import Device
from hwbench.specs import Precision
try:
    get("onnx").require_streams()
except Exception as error:
    print(type(error).__name__, error)
able, left_out = engines_for(Device("local", "local"), Precision.FP32)
print(*able)
print(*[one.reason for one in left_out if one.runtime == "broken"])
"""
    streams, able, reason = site.printed(refused)
    assert streams.startswith("UnsupportedModule the onnx runtime builds no streams; choose another engine: --runtime ")
    assert "broken" not in streams
    assert {"executorch", "torch"} <= set(able.split())
    assert reason == "runtime 'broken' of the package broken-package failed: ImportError: libengine.so is missing"


UNREADABLE = """
from hwbench.runtimes import Capabilities, FileFormat, Runtime

class Other(Runtime):
    name = "{name}"
    capabilities = {capabilities}
"""


@pytest.mark.parametrize(
    ("capabilities", "said"),
    [
        ("dict(files='.odd')", "capabilities: expected a Capabilities, got a dict"),
        ("property(lambda self: None)", "capabilities: expected a Capabilities, got a property"),
        ("Capabilities(('torch',), '.odd', 'm:M')", "capabilities.files: expected a FileFormat, got a str"),
        ("Capabilities(('torch',), FileFormat('odd'), 'm:M')", "expected an ending such as '.pt2', got 'odd'"),
        ("Capabilities(('torch',), FileFormat('.'), 'm:M')", "expected an ending such as '.pt2', got '.'"),
        ("Capabilities((), FileFormat('.odd'), 'm:M')", "expected names of distributions, the engine first, got ()"),
        ("Capabilities('torch', FileFormat('.odd'), 'm:M')", "the engine first, got 'torch'"),
    ],
)
def test_capabilities_that_cannot_be_read_stop_the_name_of_their_runtime_only(
    site: Site, capabilities: str, said: str
) -> None:
    site.offer("odd", UNREADABLE.format(name="odd", capabilities=capabilities), "odd-package")
    refused = "try:\n    get('odd')\nexcept Exception as error:\n    print(type(error).__name__, error)"
    pte, own, told = site.printed(f"print(of_file(Path('a.pte')))\nprint(*exporting())\n{refused}")
    assert (pte, own) == ("executorch", "executorch litert onnx openvino torchscript")
    assert told.startswith("MissingDependency runtime 'odd' of the package odd-package (odd_runtime:Other): ")
    assert said in told


def test_the_suite_tells_an_ending_that_another_runtime_has(site: Site) -> None:
    site.offer("zzz", RUNTIME.format(name="zzz", suffix=".ts"), "ts-slow")
    suite = """
import zzz_runtime
from hwbench.testing.runtimes import RuntimeConformance
try:
    RuntimeConformance().test_it_is_found_by_its_name_and_its_files_by_their_ending(zzz_runtime.Other())
except AssertionError:
    print("told")
"""
    assert site.printed(suite) == ["told"]
