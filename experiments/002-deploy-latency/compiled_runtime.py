"""torch.compile as an engine, for this experiment: the network as trained, compiled by Inductor when it is loaded.

``offered()`` makes it known as hwbench knows an installed runtime, also to the processes that build and run files.
"""

import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from hwbench.runtimes import Capabilities, FileFormat
from hwbench.runtimes.eager import EagerTorch
from hwbench.workspace import write_bytes

# Beside the code, a distribution with nothing in it but the name of the runtime.
ENTRY_POINTS = "[hwbench.runtimes]\ntorch-compile = compiled_runtime:CompiledTorch\n"
METADATA = "Metadata-Version: 2.1\nName: compiled-runtime\nVersion: 1.0\n"


class CompiledTorch(EagerTorch):
    """A file names the network, as for eager PyTorch; fp32 only."""

    name = "torch-compile"
    capabilities = Capabilities(
        packages=("torch",),
        files=FileFormat(".compiled.json", "the name of a network"),
        loader="compiled_runtime:load_compiled",
        original=EagerTorch.capabilities.precisions[:1],
        holds_weights=False,
    )

    def build(self, module, example, workload, out, calibration):
        """As for eager PyTorch, and the name of the engine: results are told apart by the digest of their file."""
        eager = super().build(module, example, workload, out, calibration)
        content = json.dumps({**json.loads(out.read_text()), "engine": self.name}, indent=2).encode()
        write_bytes(out, content)
        return replace(eager, sha256=hashlib.sha256(content).hexdigest())


def load_compiled(path, options):
    """The network, compiled once a process: a session of every round would compile it again."""
    from hwbench.runtimes.eager_model import load_eager
    from hwbench.runtimes.python_models import TorchModel

    if path not in _COMPILED:
        import torch
        from torch._inductor import config

        torch.set_num_threads(options.threads)
        config.freezing = True  # weights are constants: folded, and packed for oneDNN
        config.cpp.threads = options.threads
        config.force_disable_caches = True
        module, example = load_eager(Path(path))
        with torch.inference_mode():
            compiled = torch.compile(module)
            compiled(example)
        _COMPILED[path] = TorchModel(compiled, [tuple(example.shape)], options)
    return _COMPILED[path]


def _load_engine(threads):
    import torch  # noqa: F401


load_compiled.load_engine = _load_engine
_COMPILED = {}


@contextmanager
def offered() -> Iterator[None]:
    """Within, ``--runtime torch-compile`` exists."""
    here = str(Path(__file__).parent)
    with tempfile.TemporaryDirectory(prefix="hwbench-") as folder:
        about = Path(folder, "compiled_runtime-1.0.dist-info")
        about.mkdir()
        (about / "entry_points.txt").write_text(ENTRY_POINTS)
        (about / "METADATA").write_text(METADATA)
        before = os.environ.get("PYTHONPATH", "")
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [folder, here, before]))
        sys.path.insert(0, folder)
        try:
            yield
        finally:
            sys.path.remove(folder)
            os.environ["PYTHONPATH"] = before
