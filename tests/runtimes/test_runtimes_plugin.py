"""A runtime of another package works wherever a shipped one does: that of ``docs/extending/runtime.md``."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from markdown_pages import blocks, commands
from written_manifest import GOLDEN

from hwbench.deploy import DeployedModel
from hwbench.errors import InvalidFile
from hwbench.interpreter import python_path
from hwbench.runtimes import Capabilities, FileFormat, Quantiser, get
from hwbench.runtimes.capabilities import NATIVE, PYTHON
from hwbench.runtimes.runners import check_file
from hwbench.specs import Precision
from hwbench.workspace import Workspace

PAGE = Path(__file__).resolve().parents[2] / "docs" / "extending" / "runtime.md"
SPACE = """
schema = 1
name = "micro-r2plus1d"
family = "r2plus1d"
description = "a handful of blocks"
[input]
frames = 4
resolution = 32
[stem]
width = 8
kernel = "1x3x3"
stride = 2
act = "relu"
[[stages]]
depth = [1, 2]
width = [16, 32]
expansion = 0.5
"""
NETWORK = "micro-r2plus1d:frames=4,resolution=32,s1.depth=1,s1.width=16,s1.expansion=0.5"
# What is typed, with torch imported once.
LOOP = """
import sys
from hwbench.runtimes import get, of_file
from hwbench.measure.cache import engine_version
from pathlib import Path
assert get("exported").capabilities.suffix == ".pt2" and of_file(Path("a.pt2")) == "exported"
assert engine_version("exported") == get("exported").version()
assert "torch" not in sys.modules
from hwbench.cli.main import main
for words in {commands!r}:
    try:
        main([*words, "--json"])
    except SystemExit as end:
        assert not end.code, words
"""


@pytest.fixture
def installed(tmp_path: Path) -> dict[str, str]:
    """The environment in which the package of the page is installed."""
    code, table = listing("exported_runtime.py"), listing("pyproject.toml")
    site = tmp_path / "site"
    about = site / "exported_runtime-1.0.dist-info"
    about.mkdir(parents=True)
    (site / "exported_runtime.py").write_text(code)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: exported-runtime\nVersion: 1.0\n")
    points = tomllib.loads(table)["project"]["entry-points"]["hwbench.runtimes"]
    lines = ["[hwbench.runtimes]", *(f"{name} = {place}" for name, place in points.items())]
    (about / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return {**os.environ, "PYTHONPATH": f"{site}{os.pathsep}{python_path()}", "PYTHONWARNINGS": "ignore"}


def listing(title: str) -> str:
    """The file of that name on the page."""
    (text,) = (block.text for block in blocks(PAGE) if block.title == title)
    return text


def objects(text: str) -> list[dict[str, object]]:
    """JSON objects that stand one after the other."""
    found, decoder = [], json.JSONDecoder()
    while text := text.lstrip():
        value, end = decoder.raw_decode(text)
        found.append(value)
        text = text[end:]
    return found


@pytest.mark.long
def test_the_runtime_of_the_page_builds_measures_and_exports(installed: dict[str, str], tmp_path: Path) -> None:
    workspace = Workspace.create(tmp_path / "bench")
    (workspace.root / "search_spaces" / "micro-r2plus1d.toml").write_text(SPACE)
    words = [line[1:] for line in commands(PAGE)]
    assert [line[0] for line in words] == ["bench", "export", "bench"]
    named = [[NETWORK if word == "zoo:x3d-xs" else word for word in line] for line in words]
    quick = ["--samples", "10", "--seconds", "0.1"]
    typed = [[*line, *quick] if line[0] == "bench" else line for line in named]
    done = subprocess.run(
        [sys.executable, "-c", LOOP.format(commands=typed)],
        cwd=workspace.root, env=installed, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    built, exported, timed = objects(done.stdout)
    assert (built["runtime"], timed["runtime"]) == ("exported", "exported")
    assert min(built["median_ms"], timed["median_ms"]) > 0
    assert timed["precision"] == "fp32"
    folder = workspace.root / "exported" / "x3d-xs"
    assert Path(exported["model"]).name == "model.pt2"
    assert {path.name for path in folder.iterdir()} == {"model.pt2", "manifest.json", "RUN.md"}
    page = (folder / "RUN.md").read_text()
    assert "from hwbench.runtimes.runners import check_file" in page
    version = json.loads((folder / "manifest.json").read_text())["runtime_version"]
    needed = f"beside the engine, torch {version}, and `exported-runtime`, the package with the runtime `exported`.\n"
    assert needed in page
    # Where that package is not installed, as in the process of this test.
    with pytest.raises(
        InvalidFile, match=r"^\S+model\.pt2: no runtime that is installed has files called \*\.pt2; ins"
    ):
        check_file(folder / "model.pt2")
    with pytest.raises(InvalidFile, match=r"unknown runtime 'exported'; known: .*; install the package that it comes"):
        DeployedModel.open(folder)
    assert json.loads((folder / "manifest.json").read_text())["versions"]["torch"] == built["version"]


@pytest.mark.long
def test_the_runtime_of_the_page_passes_the_suite(installed: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "test_exported.py").write_text(listing("test_exported.py"))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_exported.py"],
        cwd=tmp_path, env=installed, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert "6 passed" in done.stdout


PAGED = """
from hwbench.runtimes import Capabilities, FileFormat, Runtime


class Words(Runtime):
    name = "words"
    capabilities = Capabilities(("torch",), FileFormat(".words"), "paged:Model", run_page="words_page:RUN.txt")

    def build(self, *_):
        raise RuntimeError("it was built")


class Lost(Words):
    name = "lost"
    capabilities = Capabilities(("torch",), FileFormat(".lost"), "paged:Model", run_page="paged:RUN.txt")


class Gone(Words):
    name = "gone"
    capabilities = Capabilities(("torch",), FileFormat(".gone"), "paged:Model", run_page="words_page:NO.txt")
"""
DOCUMENTED = sorted(set(re.findall(r"@[A-Z_]+@", PAGE.read_text())))
OF_STREAMS = ["@BYTES@", "@REMEMBERED@", "@STATES@", "@TYPES@", "@WINDOW@"]


@pytest.fixture
def paged(tmp_path: Path) -> dict[str, str]:
    """The environment with runtimes that have pages of their own."""
    site = tmp_path / "site"
    about = site / "paged-1.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: paged\nVersion: 1\n")
    points = "".join(f"{name.lower()} = paged:{name}\n" for name in ("Words", "Lost", "Gone"))
    (about / "entry_points.txt").write_text(f"[hwbench.runtimes]\n{points}")
    (site / "paged.py").write_text(PAGED)
    (site / "words_page").mkdir()
    (site / "words_page" / "__init__.py").touch()
    (site / "words_page" / "RUN.txt").write_text(f"Mail <me@OUR@host>. {' '.join(DOCUMENTED)}\n")
    return {**os.environ, "PYTHONPATH": f"{site}{os.pathsep}{python_path()}", "PYTHONWARNINGS": "ignore"}


def test_words_of_a_page_that_are_none_stay(paged: dict[str, str], tmp_path: Path) -> None:
    code = (
        "import sys; from dataclasses import replace; from pathlib import Path\n"
        "from hwbench.deploy.manifest import Manifest; from hwbench.deploy.run_page import run_page\n"
        "print(run_page(replace(Manifest.read(Path(sys.argv[1])), runtime='words')))"
    )
    words = [sys.executable, "-P", "-c", code, str(GOLDEN)]
    done = subprocess.run(words, env=paged, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert len(DOCUMENTED) > 20
    assert re.findall(r"@[A-Z_]+@", done.stdout) == ["@OUR@", *OF_STREAMS]


def test_every_word_of_the_shipped_pages_is_listed() -> None:
    pages = [*(PAGE.parents[2] / "hwbench").rglob("run*.md.in")]
    words = {word for page in pages for word in re.findall(r"@[A-Z_]+@", page.read_text())}
    assert {"@FILE@", *OF_STREAMS} <= words
    assert sorted(words - {*DOCUMENTED}) == []


@pytest.mark.parametrize(
    ("name", "place", "cause"),
    [("lost", "paged:RUN.txt", "TypeError: 'paged' is not a package"), ("gone", "words_page:NO.txt", "No such file")],
)
def test_a_page_that_cannot_be_read_is_told_before_the_build(
    name: str, place: str, cause: str, paged: dict[str, str], tmp_path: Path
) -> None:
    workspace = Workspace.create(tmp_path / "bench")
    (workspace.root / "search_spaces" / "micro-r2plus1d.toml").write_text(SPACE)
    words = ["export", NETWORK, "--weights", "random", "--precision", "fp32", "--runtime", name, "--out", "out"]
    done = subprocess.run(
        [sys.executable, "-m", "hwbench", *words],
        cwd=workspace.root, env=paged, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    said = " ".join(done.stderr.replace("│", " ").split())
    assert (done.returncode, "it was built" in said) == (2, False), said
    assert f"runtime '{name}' of the package paged: expected package:file as its run_page" in said
    assert f"got '{place}' (" in said
    assert cause in said


def test_what_it_cannot_do_is_told_with_what_can(installed: dict[str, str], tmp_path: Path) -> None:
    workspace = Workspace.create(tmp_path / "bench")
    for ending in ("pt2", "pt3"):
        (tmp_path / f"text.{ending}").write_text("a text\n")
    for words, expected in (
        (["bench", str(tmp_path / "text.pt2")], "expected an exported program, found something else"),
        (["bench", str(tmp_path / "text.pt3")], "expected a file that ends in .pte, .pt2, .tflite, .onnx, .ovz or .ts"),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "hwbench", *words],
            cwd=workspace.root, env=installed, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert done.returncode != 0
        assert expected in done.stderr


def test_capabilities_are_known_without_torch() -> None:
    code = (
        "import sys; from hwbench.runtimes import get, names; "
        "print(len(names()), *[get(name).capabilities.loader for name in names()]); "
        "sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    count, *loaders = done.stdout.split()
    assert len(loaders) == int(count) >= 4
    assert all(re.fullmatch(r"hwbench\.runtimes\.\w+:\w+", loader) for loader in loaders)


def test_values_of_the_shipped_runtimes_hold_together() -> None:
    engines = ("executorch", "litert", "onnx", "openvino", "torch", "torchscript")
    shipped = {name: get(name).capabilities for name in engines}
    assert len({known.suffix for known in shipped.values()}) == len(shipped)
    assert [name for name, known in shipped.items() if known.remote] == ["executorch", "litert"]
    assert [name for name, known in shipped.items() if not known.holds_weights] == ["torch"]
    assert [name for name, known in shipped.items() if known.runners[0] == NATIVE] == ["executorch"]
    assert all(PYTHON in known.runners for known in shipped.values())
    for known in shipped.values():
        assert (known.quantiser is Quantiser.NONE) == (Precision.INT8 not in known.precisions)
        package, _, file = known.run_page.partition(":")
        assert (Path(sys.modules["hwbench"].__path__[0]).parent / package.replace(".", "/") / file).is_file()


@pytest.mark.parametrize(
    ("start", "fits"), [(b"\0\0\0\0ET12", True), (b"ET12", False), (b"", False), (b"\0\0\0\0PK\3\4", False)]
)
def test_the_magic_bytes_are_where_the_format_has_them(start: bytes, fits: bool) -> None:
    assert get("executorch").capabilities.files.matches(start) == fits
    assert FileFormat(".any").matches(start)


def test_a_runtime_needs_to_say_little() -> None:
    known = Capabilities(packages=("torch",), files=FileFormat(".x"), loader="a:b")
    assert (known.remote, known.holds_weights, known.quantiser) == (False, True, Quantiser.NONE)
