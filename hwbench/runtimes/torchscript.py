"""TorchScript, the engine of 2021: traced and frozen, in int8 by eager-mode quantisation; as long as torch has both."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import importlib
import importlib.metadata
import io
import itertools
import json
import platform
import re
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from hwbench.errors import UnsupportedModule
from hwbench.printable import printable
from hwbench.runtimes.base import Runtime, runtimes, single
from hwbench.runtimes.calibration import require_clips, require_observed
from hwbench.runtimes.capabilities import Capabilities, FileFormat, Quantiser
from hwbench.runtimes.executorch.quiet import quiet
from hwbench.specs import Artifact, DelegationReport, Precision, Workload
from hwbench.workspace import write_bytes

if TYPE_CHECKING:
    import torch
    from torch import nn

    from hwbench.runtimes.base import Example

# A JSON object in the archive: ``input``, the shape of the one input, and ``engine``, the kernels for int8 that its
# weights are packed for (empty in fp32).
NOTE = "hwbench.json"

# The kernels for int8 that torch may have, the best first. On x86-64 oneDNN takes a twentieth of the time of the two
# others for depthwise convolutions whose channels are no multiple of 8, which X3D is full of.
_ENGINES = {"x86_64": ("onednn", "x86", "fbgemm", "qnnpack"), "aarch64": ("qnnpack", "onednn")}

# How torch says that one of two tensors is in fp32 and the other in 16 bits.
_DIFFERENT = re.compile(r"\bfloat\b.*\b(half|bfloat16)\b|\b(half|bfloat16)\b.*\bfloat\b", re.IGNORECASE)


@runtimes.register("torchscript")
class TorchScript(Runtime):
    """A traced module, frozen, fp32 values in and out at every precision.

    In variant ``auto`` and every precision but int8 it is the original form: the plain peer that others are compared
    with. Any other variant and int8 are the deploy form, int8 as in the flow of 2021: stubs at both ends, prepare,
    calibrate, convert, trace.

    The file holds the weights and nothing about the machine that wrote it. torch numbers the classes that it writes, so
    two builds in one process differ in their names.
    """

    name: ClassVar[str] = "torchscript"
    capabilities: ClassVar[Capabilities] = Capabilities(
        packages=("torch",),
        files=FileFormat(".ts", "a TorchScript archive", b"PK"),
        loader="hwbench.runtimes.script_model:ScriptModel",
        precisions=(Precision.FP32, Precision.FP16, Precision.BF16, Precision.INT8),
        quantiser=Quantiser.ENGINE,
        original=(Precision.FP32, Precision.FP16, Precision.BF16),
        run_page="hwbench.runtimes:run-torchscript.md.in",
    )

    def build(
        self,
        module: nn.Module,
        example: Example,
        workload: Workload,
        out: Path,
        calibration: Sequence[Example],
    ) -> Artifact:
        """Writes the file; the delegation report is empty: there is no delegate.

        Args:
            module: Left as it is, and copied in eval mode; for int8 in deploy form.
            example: One input; its shape is baked in.
            workload: Its precision decides about quantisation.
            out: The file.
            calibration: Inputs of the shape of ``example``, all of them used; needed for int8 only.

        Raises:
            MissingDependency: torch is not installed.
            NotCalibrated: int8 without calibration data, or with data that does not reach every activation.
            UnsupportedModule: int8, and this torch has no eager-mode quantisation, or the network has an operation that
                it has no kernel for; or 16 bits, and the network computes with tensors that stay in fp32.
            WorkspaceError: ``out`` cannot be written.
        """
        version, example = self.version(), single(example, "TorchScript")
        import torch

        from hwbench.runtimes.half import in_precision

        jit: Any = torch.jit  # without types
        with quiet(), torch.no_grad():  # torch announces the end of both
            module, note = copy.deepcopy(module).eval(), {"input": list(example.shape)}
            engine = ""
            if workload.precision is Precision.INT8:
                require_clips(calibration, example)
                engine = engine_of(torch.backends.quantized.supported_engines)
            refused = _refused_by_kernels() if engine else _kept_dtypes_refused(workload.precision)
            with int8_engine(engine), refused:
                if engine:
                    module = quantized(module, [single(batch, "TorchScript") for batch in calibration], engine)
                script = jit.freeze(
                    jit.trace(in_precision(module, workload.precision), example, strict=False, check_trace=False)
                )
                buffer = io.BytesIO()
                jit.save(script, buffer, _extra_files={NOTE: json.dumps({**note, "engine": engine})})
        content = _without_traces(buffer)
        write_bytes(out, content)
        digest = hashlib.sha256(content).hexdigest()
        return Artifact(out, digest, workload, self.name, version, DelegationReport(0))


@contextlib.contextmanager
def _refused_by_kernels() -> Iterator[None]:
    """Operations on int8 that torch has no kernel for are refused by name; torch's own text is a page of advice."""
    try:
        yield
    except RuntimeError as error:  # or NotImplementedError, which is one
        lines = str(error).strip().splitlines() or [type(error).__name__]
        named = re.search(r"aten::\w+", lines[0])
        what = f"{named[0]} on int8" if named else f"the network in int8 ({printable(lines[0], 120)})"
        raise UnsupportedModule(
            f"torch's eager-mode quantisation has no kernel for {what}; choose another engine: --runtime executorch, "
            "onnx or openvino"
        ) from error


@contextlib.contextmanager
def _kept_dtypes_refused(precision: Precision) -> Iterator[None]:
    """Networks with tensors that do not follow them to 16 bits are refused with what to write.

    Those are attributes that are neither parameters nor buffers, and what a forward makes in fp32.
    """
    try:
        yield
    except RuntimeError as error:
        if precision is Precision.FP32 or not _DIFFERENT.search(str(error)):
            raise
        cause = printable(str(error).strip().splitlines()[0], 120)
        raise UnsupportedModule(
            f"the network computes with tensors that stay in fp32 ({cause}) and cannot be in {precision}; "
            "make tensors that are attributes buffers: self.register_buffer(name, tensor), write "
            "x.to(self.fc.weight.dtype) in place of x.float(), or export --precision fp32"
        ) from error


def _without_traces(buffer: io.BytesIO) -> bytes:
    """The archive without the notes for debugging: where in which file each operation was called."""
    made = io.BytesIO()
    with zipfile.ZipFile(buffer) as archive, zipfile.ZipFile(made, "w", zipfile.ZIP_STORED) as kept:
        for entry in archive.infolist():
            if not entry.filename.endswith(".debug_pkl"):
                kept.writestr(entry, archive.read(entry))
    return made.getvalue()


def engine_of(supported: Sequence[str]) -> str:
    """The kernels for int8 to take of those that torch has here.

    Raises:
        UnsupportedModule: It has none.
    """
    wanted = _ENGINES.get(platform.machine(), _ENGINES["aarch64"])
    found = next((name for name in wanted if name in supported), None)
    if found is None:
        raise UnsupportedModule(
            f"this torch has no int8 kernels for TorchScript (expected one of {', '.join(wanted)}); "
            "choose another engine: --runtime executorch"
        )
    return found


@contextlib.contextmanager
def int8_engine(name: str) -> Iterator[None]:
    """Sets torch's kernels for int8 for a while; an empty name leaves them."""
    from torch.backends import quantized as backend

    before = backend.engine
    try:
        if name:
            backend.engine = name
        yield
    finally:
        backend.engine = before


def quantized(module: nn.Module, calibration: Sequence[torch.Tensor], engine: str) -> nn.Module:
    """The module in int8 by eager-mode quantisation, which needs ``engine`` to be set.

    Args:
        module: In eval mode, sums and products of activations as ``FloatFunctional``; changed.
        calibration: Inputs; every one of them is run through the module to find the ranges.
        engine: Whose kernels are to run it.

    Raises:
        NotCalibrated: An activation saw none of the calibration data.
        UnsupportedModule: This torch has no eager-mode quantisation.
    """
    from torch import nn

    quantization = _eager_quantization()
    fuse(module)
    wrapped = nn.Sequential(quantization.QuantStub(), module, quantization.DeQuantStub()).eval()
    # The configuration of "x86" keeps activations to 7 bits, which no processor overflows on.
    wrapped.qconfig = quantization.get_default_qconfig("qnnpack" if engine == "qnnpack" else "x86")
    prepared = quantization.prepare(wrapped)
    for clip in calibration:
        prepared(clip)
    require_observed(prepared)
    converted: nn.Module = quantization.convert(prepared)
    return converted


def _eager_quantization() -> Any:
    try:
        return importlib.import_module("torch.ao.quantization")
    except ImportError:
        raise UnsupportedModule(
            "this torch has no eager-mode quantisation any more; choose another engine for int8: --runtime executorch"
        ) from None


def fuse(module: nn.Module) -> None:
    """Makes one module, in place, of every 2-D convolution with a ReLU behind it in a sequence, used there only."""
    from torch import nn

    quantization = _eager_quantization()
    uses = Counter(id(m) for _, m in module.named_modules(remove_duplicate=False))
    for sequence in [m for m in module.modules() if type(m) is nn.Sequential]:
        for (a, first), (b, second) in itertools.pairwise([*sequence.named_children()]):
            alone = uses[id(first)] == uses[id(second)] == 1
            if alone and type(first) is nn.Conv2d and type(second) is nn.ReLU:
                quantization.fuse_modules(sequence, [a, b], inplace=True)
