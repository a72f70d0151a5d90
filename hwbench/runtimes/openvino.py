"""OpenVINO on the processor: ``.ovz`` files in fp32, fp16, bf16 and int8, of the network as it was trained."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import importlib
import io
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from hwbench.errors import InvalidFile, UnsupportedModule
from hwbench.runtimes.base import Runtime, arguments_of, installed_version, runtimes
from hwbench.runtimes.calibration import require_clips
from hwbench.runtimes.capabilities import Capabilities, FileFormat, Quantiser
from hwbench.runtimes.executorch.quiet import quiet
from hwbench.specs import Artifact, DelegationReport, Precision, Workload
from hwbench.workspace import write_bytes

if TYPE_CHECKING:
    from torch import nn

    from hwbench.runtimes.base import Example

# What converts and runs a file, and what quantises one; both are the extra ``openvino``.
_DISTRIBUTIONS = ("openvino", "nncf")
# Members of an archive: OpenVINO's graph as XML, its weights, and the precision to compute in as a word.
GRAPH, WEIGHTS, PRECISION = "model.xml", "model.bin", "precision.txt"
_TELEMETRY = "openvino_telemetry"
# A fixed date, so that the same model gives the same bytes.
_DATE = (1980, 1, 1, 0, 0, 0)


@runtimes.register("openvino")
class OpenVino(Runtime):
    """OpenVINO's plugin for processors, fp32 values in and out at every precision.

    In variant ``auto`` the original form is what is converted, since the plugin has 3-D convolutions of its own: of the
    time of the deploy form X3D-XS takes 0.8 in fp32 and in bf16, and 0.45 in int8 (one thread of an x86-64 with
    AVX-512). Any other variant is the deploy form. int8 is NNCF's static quantisation after training.

    The file is an archive of OpenVINO's two (graph and weights) and the precision. fp16 and bf16 are asked for when the
    file is loaded; a processor on which OpenVINO would compute in something else refuses it there.
    """

    name: ClassVar[str] = "openvino"
    capabilities: ClassVar[Capabilities] = Capabilities(
        packages=(*_DISTRIBUTIONS, "torch"),
        files=FileFormat(".ovz", "an OpenVINO model as hwbench export --runtime openvino writes it", b"PK"),
        loader="hwbench.runtimes.openvino_model:OpenVinoModel",
        precisions=tuple(Precision),
        quantiser=Quantiser.ENGINE,
        original=tuple(Precision),
        run_page="hwbench.runtimes:run-openvino.md.in",
    )

    def version(self) -> str:
        """Version of the openvino distribution.

        Raises:
            MissingDependency: It is not installed, or nncf is not.
        """
        versions = [installed_version(name, ["hwbench[openvino]"]) for name in _DISTRIBUTIONS]
        return versions[0]

    def precision_in(self, path: Path) -> Precision:
        """The word in the archive.

        Raises:
            InvalidFile: There is none, or it is no precision.
        """
        try:
            with zipfile.ZipFile(path) as entries:
                return Precision(entries.read(PRECISION).decode())
        except Exception as error:  # a damaged archive raises what it likes
            raise InvalidFile(
                f"{path}: expected {self.capabilities.files.content}: {error}; export it again"
            ) from error

    def build(
        self,
        module: nn.Module,
        example: Example,
        workload: Workload,
        out: Path,
        calibration: Sequence[Example],
    ) -> Artifact:
        """Writes the file; the delegation report is empty: the plugin has a kernel for every operation.

        Args:
            module: Left as it is, and copied in eval mode.
            example: One input; its shape is baked in, no axis of the file is open.
            workload: Its precision decides about quantisation.
            out: The file.
            calibration: Inputs of the shape of ``example``, all of them used; needed for int8 only.

        Raises:
            MissingDependency: openvino or nncf is not installed.
            NotCalibrated: int8 without calibration data, or with values that are not finite.
            UnsupportedModule: The module has an operation that OpenVINO has not.
            WorkspaceError: ``out`` cannot be written.
        """
        version = self.version()
        if workload.precision is Precision.INT8:
            require_clips(calibration, example)
        with quiet():
            model = converted(copy.deepcopy(module).eval(), example)
            if workload.precision is Precision.INT8:
                model = quantized(model, calibration)
            content = archive(model, workload.precision)
        write_bytes(out, content)
        digest = hashlib.sha256(content).hexdigest()
        return Artifact(out, digest, workload, self.name, version, DelegationReport(0))


def engine(name: str) -> Any:
    """The module ``openvino`` or ``nncf``, which tells its maker nothing of its use and asks no question at a terminal.

    Both bind what sends (``openvino_telemetry``) when they are imported, and do without where it is not there.

    Raises:
        ImportError: It is not installed.
    """
    before = sys.modules.get(_TELEMETRY, ...)
    sys.modules[_TELEMETRY] = None  # type: ignore[assignment]  # an import of it fails
    try:
        return importlib.import_module(name)
    finally:
        if before is ...:
            del sys.modules[_TELEMETRY]
        else:
            sys.modules[_TELEMETRY] = before


def converted(module: nn.Module, example: Example) -> Any:
    """An ``openvino.Model`` of a module, for inputs of the shapes of the example only.

    Raises:
        UnsupportedModule: The module cannot be exported, or has an operation that OpenVINO has not.
    """
    import torch

    from hwbench.runtimes.openvino_graph import average_as_torch  # the runner of a device has this file alone

    openvino, arguments = engine("openvino"), arguments_of(example)
    try:
        with torch.no_grad():
            program = torch.export.export(module, arguments, strict=False)
        model = openvino.convert_model(program, input=[tuple(one.shape) for one in arguments])
        average_as_torch(openvino, model)
        return model
    except Exception as error:  # both raise what they like
        cause = " ".join(str(error).split())[:300]
        raise UnsupportedModule(f"{type(module).__name__} cannot be written for OpenVINO: {cause}") from error


def quantized(model: Any, calibration: Sequence[Example]) -> Any:
    """The model in int8 by NNCF: weights symmetric per output channel, activations by tensor, biases corrected."""
    nncf = engine("nncf")
    data = [tuple(one.numpy() for one in arguments_of(batch)) for batch in calibration]
    with contextlib.redirect_stdout(io.StringIO()):  # progress bars
        return nncf.quantize(
            model, nncf.Dataset([one if len(one) > 1 else one[0] for one in data]), subset_size=len(data)
        )


def archive(model: Any, precision: Precision) -> bytes:
    """One file of a model, whose operations are renamed by kind and place; weights in fp16 take half the bytes."""
    from hwbench.scratch import scratch_folder  # the runner of a device has this file alone

    openvino = engine("openvino")
    model.set_friendly_name("hwbench")
    for index, operation in enumerate(model.get_ordered_ops()):  # the engine counts on from one model to the next
        operation.set_friendly_name(f"{operation.get_type_name()}_{index}")
    made = io.BytesIO()
    with scratch_folder() as folder:
        openvino.save_model(model, Path(folder, GRAPH), compress_to_fp16=precision is Precision.FP16)
        contents = {name: Path(folder, name).read_bytes() for name in (GRAPH, WEIGHTS)}
    with zipfile.ZipFile(made, "w", zipfile.ZIP_STORED) as entries:
        for name, content in {**contents, PRECISION: precision.value.encode()}.items():
            entries.writestr(zipfile.ZipInfo(name, _DATE), content)
    return made.getvalue()
