"""A runtime of another package builds streams: its loader is held against ``StreamModel``, and its page is its own."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from written_manifest import GOLDEN

from hwbench.interpreter import python_path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "extending" / "runtime.md"
# As ``exported_runtime.py`` of the page, with streams. ``Half`` has what any loader has.
CODE = """
import hashlib
import io
from dataclasses import replace

from hwbench.runtimes import Capabilities, FileFormat, Runtime
from hwbench.runtimes.base import arguments_of, hands_on
from hwbench.runtimes.python_models import TorchModel, frames_of
from hwbench.specs import Artifact, DelegationReport
from hwbench.workspace import write_bytes


class Whole(Runtime):
    name = "whole"
    capabilities = Capabilities(
        ("torch",), FileFormat(".pts", "an exported stream", b"PK"), "streaming:WholeModel", streams=True
    )

    def build(self, module, example, workload, out, calibration):
        import torch

        program = torch.export.export(module, arguments_of(example, as_stored=hands_on(module)))
        for node in program.graph.nodes:
            node.meta.pop("stack_trace", None)
        content = io.BytesIO()
        torch.export.save(program, content)
        write_bytes(out, content.getvalue())
        digest = hashlib.sha256(content.getvalue()).hexdigest()
        return Artifact(out, digest, workload, self.name, self.version(), DelegationReport(0))


class Half(Whole):
    name = "half"
    capabilities = replace(
        Whole.capabilities, files=FileFormat(".pth"), loader="streaming:HalfModel", stream_page="streaming_page:RUN.txt"
    )


class Pageless(Whole):
    name = "pageless"
    capabilities = replace(Whole.capabilities, files=FileFormat(".ptp"), stream_page="streaming_page:NO.txt")


class HalfModel(TorchModel):
    def __init__(self, path, options):
        import torch

        program = torch.export.load(path)
        self.example, _ = program.example_inputs
        super().__init__(program.module(), [tuple(one.shape) for one in self.example], options)

    def make_inputs(self):
        import torch

        first, self.later = frames_of(self._shapes[0], self._input_file)
        frame = torch.empty_like(self.example[0])
        frame.copy_(torch.from_numpy(first))
        self._inputs = [frame, *map(torch.zeros_like, self.example[1:])]

    def run(self):
        ns = super().run()
        if isinstance(self._output, tuple):
            self._output, *self._inputs[1:] = self._output
        return ns


class WholeModel(HalfModel):
    def make_inputs(self):
        super().make_inputs()
        self.later_frames = self.later

    def begin_anew(self):
        import torch

        self._inputs[1:] = map(torch.zeros_like, self.example[1:])
"""
SUITE = """
import pytest

from hwbench.runtimes import get
from hwbench.testing.runtimes import RuntimeConformance


class TestWhole(RuntimeConformance):
    @pytest.fixture
    def runtime(self):
        return get("whole")
"""
# Exports a stream of a small network: what ``export --streaming`` does.
EXPORT = """
import sys
from pathlib import Path

from hwbench.data import ClipSpec
from hwbench.deploy import Streaming, export, randomly_weighted
from hwbench.errors import HwbenchError
from hwbench.runtimes import get
from hwbench.specs import Network, Precision, TensorSpec
from hwbench.specs.bottlenecks import x3d_head, x3d_stage, x3d_stem

blocks = [x3d_stem(8)]
blocks += x3d_stage(8, depth=1, width=8, expansion=2.0, kernel=((3, 3, 3),), se=0.5, act="swish", stride=2)
blocks.append(x3d_head(8, 16, 16, 5))
source = randomly_weighted(Network("small", tuple(blocks), TensorSpec(1, 3, 3, 16, 16)).causal(), ClipSpec(3, stride=1))
try:
    export(source, Path("out"), precision=Precision.FP32, runtime=get(sys.argv[1]), streaming=Streaming())
except HwbenchError as error:
    print(error)
    sys.exit(error.exit_status)
"""
# A page of a stream: prints what is written for the words of ``stream_page``.
SHOW = """
import sys
from dataclasses import replace
from pathlib import Path

from hwbench.deploy.manifest import Manifest
from hwbench.deploy.manifest_records import StateRecord, StreamRecord
from hwbench.deploy.run_page import run_page

stream = StreamRecord((StateRecord("a", (1, 8, 4, 4), "NHWC", 0.0, "float32"),), None, 4)
print(run_page(replace(Manifest.read(Path(sys.argv[1])), runtime=sys.argv[2], stream=stream)))
"""


@pytest.fixture
def installed(tmp_path: Path) -> dict[str, str]:
    """The environment with the runtimes."""
    site = tmp_path / "site"
    about = site / "streaming-1.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: streaming\nVersion: 1\n")
    points = "".join(f"{name.lower()} = streaming:{name}\n" for name in ("Whole", "Half", "Pageless"))
    (about / "entry_points.txt").write_text(f"[hwbench.runtimes]\n{points}")
    (site / "streaming.py").write_text(CODE)
    (site / "streaming_page").mkdir()
    (site / "streaming_page" / "__init__.py").touch()
    words = sorted(set(re.findall(r"@[A-Z_]+@", PAGE.read_text())))
    (site / "streaming_page" / "RUN.txt").write_text(f"## My player\n\n{' '.join(words)} @OUR@\n")
    return {**os.environ, "PYTHONPATH": f"{site}{os.pathsep}{python_path()}", "PYTHONWARNINGS": "ignore"}


def run(words: list[str], installed: dict[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", *words]
    return subprocess.run(command, env=installed, cwd=folder, capture_output=True, text=True, timeout=600, check=False)


@pytest.mark.long
def test_a_loader_of_streams_passes_the_suite(installed: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "test_whole.py").write_text(SUITE)
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--show-capture=no", "test_whole.py", "-k", "stream_hands"]
    done = run(words, installed, tmp_path)
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout


def test_export_names_what_the_loader_of_a_stream_lacks(installed: dict[str, str], tmp_path: Path) -> None:
    done = run(["-c", EXPORT, "half"], installed, tmp_path)
    assert done.returncode == 5, done.stderr
    (said,) = done.stdout.splitlines()
    assert "the loader streaming:HalfModel of its runtime lacks begin_anew and later_frames, without which" in said
    assert said.endswith("add what hwbench.runtimes.python_models.StreamModel says to it")
    assert not (tmp_path / "out").exists()


def test_the_page_of_a_stream_is_that_of_its_runtime(installed: dict[str, str], tmp_path: Path) -> None:
    own = run(["-c", SHOW, str(GOLDEN), "half"], installed, tmp_path)
    assert own.returncode == 0, own.stderr
    assert "What the states mean" in own.stdout
    assert "## My player" in own.stdout
    assert re.findall(r"@[A-Z_]+@", own.stdout) == ["@OUR@"]
    plain = run(["-c", SHOW, str(GOLDEN), "whole"], installed, tmp_path)
    assert "from hwbench.deploy.model_process import served" in plain.stdout
    assert "`streaming`, the package with the runtime `whole`" in plain.stdout
    assert not re.search(r"@[A-Z_]+@", plain.stdout)
    for text in (own.stdout, plain.stdout):
        assert "pip install executorch" not in text
        assert "#include" not in text


def test_a_page_of_streams_that_cannot_be_read_is_told_before_the_build(
    installed: dict[str, str], tmp_path: Path
) -> None:
    done = run(["-c", EXPORT, "pageless"], installed, tmp_path)
    assert done.returncode == 2, done.stderr
    said = "runtime 'pageless' of the package streaming: expected package:file as its stream_page, a text in a folder"
    assert said in done.stdout
    assert "got 'streaming_page:NO.txt' (" in done.stdout
