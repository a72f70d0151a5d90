"""``hwbench.export``: from a checkpoint, or a network by name, to a checked file and its manifest."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwbench.api.export_request import ExportRequest as ExportRequest
from hwbench.api.export_sources import open_source
from hwbench.api.layouts import fastest_on
from hwbench.api.listener import SILENT, Listener, StageProgress
from hwbench.api.models import ModelArgument, check_made_by
from hwbench.api.reading import reading_of
from hwbench.api.requests import changed
from hwbench.api.resources import torch_threads
from hwbench.errors import InvalidValue, UsageError
from hwbench.printable import enumeration
from hwbench.specs import AUTO, Network, Precision

if TYPE_CHECKING:
    from pandas import DataFrame

    from hwbench.data import FailurePolicy, Reading
    from hwbench.deploy import DeployedModel, ExportSource, Int8, QuantizationRecord, Streaming, Watch
    from hwbench.deploy.manifest_records import Accuracy, StreamRecord
    from hwbench.runtimes import Runtime
    from hwbench.workspace import Workspace

# Stages of an export as a person reads them.
STAGES = {
    "calibrate": "calibration clips",
    "blocks": "look at blocks",
    "observers": "compare observers",
    "build": "build",
    "check": "check against the original",
}
# Without labels that mean something a few clips show the parity as well.
_UNTRAINED_VIDEOS = 16


@dataclass(frozen=True)
class ExportResult:
    """A checked file with its manifest, and the wall time it took."""

    model: DeployedModel
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """The keys that ``hwbench export --json`` prints."""
        return {**summary(self.model), "seconds": self.seconds}

    def to_frame(self) -> DataFrame:
        """The blocks that were looked at, one row each; no row for fp32 or where none was looked at.

        ``name``; ``sqnr_db`` of the output of the block; ``alone_db``: SQNR of the logits where it alone is int8;
        ``precision`` of the block in the file.
        """
        from dataclasses import fields

        from pandas import DataFrame

        from hwbench.deploy import BlockQuality

        columns = [*(one.name for one in fields(BlockQuality)), "precision"]
        how = self.model.manifest.quantization
        if how is None:
            return DataFrame(columns=columns)
        rows = [{**asdict(block), "precision": how.precision_of(block.name).value} for block in how.blocks]
        return DataFrame(rows, columns=columns)


def export(
    request: ExportRequest, listener: Listener = SILENT, *, workspace: Workspace | str | Path | None = None
) -> ExportResult:
    """Converts, quantises and checks a model; writes the file only where it computes what the original computes.

    Args:
        request: What, where to, and how.
        listener: Hears the stages, what is doubtful about weights, and what a choice rests on.
        workspace: Holds studies, cards, tables and the synthetic set; default: the one around the current folder.

    Raises:
        UsageError: What is asked for does not go together, or a name or a file is not there.
        NotCalibrated: int8 without calibration clips.
        ParityFailed: The file does not compute what the original computes.
        DelegationFailed: An operation is left outside the delegate.
        WorkspaceError: The folder cannot be written.
    """
    from hwbench.data import FailurePolicy
    from hwbench.deploy import Streaming
    from hwbench.deploy.file_names import RUN, is_our_page
    from hwbench.runtimes import get
    from hwbench.spaces import load_named
    from hwbench.workspace import Workspace

    start = time.monotonic()
    workspace, engine = Workspace.at(workspace), get(request.runtime)
    precision = Precision.parse(request.precision)
    _check_names(request)
    load_named(request.made_by)
    with torch_threads(request.threads) as threads:
        source = open_source(workspace, request.model, request.source(), listener)
        _check_source(request, source)
        deployed = export_source(
            workspace,
            source,
            request.out,
            precision,
            calibrate=request.calibrate,
            data=request.data,
            variant=_variant(workspace, source, request, listener),
            calibration_clips=request.calibration_clips,
            videos=request.videos,
            seed=request.seed,
            policy=FailurePolicy.parse(request.on_error),
            threads=threads,
            runtime=engine,
            int8=request.int8(),
            listener=listener,
            reading=reading_of(request.decoder),
            streaming=Streaming(request.memory) if request.streaming else None,
        )
    _say_observer(deployed, listener)
    for reason in deployed.manifest.parity.reasons:
        listener.say(reason)
    if not is_our_page(page := request.out / RUN):
        listener.say(f"{page} is none of hwbench and stays as it is: no page says how to run this model")
    return ExportResult(deployed, round(time.monotonic() - start, 1))


def export_source(
    workspace: Workspace,
    source: ExportSource,
    out: Path,
    precision: Precision,
    *,
    calibrate: str | None = None,
    data: str | None = None,
    variant: str = AUTO,
    calibration_clips: int = 32,
    videos: int | None = None,
    seed: int = 0,
    policy: FailurePolicy | None = None,
    threads: int = 1,
    runtime: Runtime | None = None,
    int8: Int8 | None = None,
    listener: Listener = SILENT,
    streaming: Streaming | None = None,
    reading: Reading | None = None,
) -> DeployedModel:
    """Exports with data by name: calibrates on the training videos of ``calibrate``, by default those of ``data``, and
    validates on the validation videos of ``data``. Without either both are what the source was trained on, and of a
    source that was not trained here nothing; ``calibrate`` alone is what such a source is validated on, too.

    Raises:
        What ``hwbench.deploy.export``, ``open_calibration`` and ``open_validation`` raise.
    """
    from hwbench.data import FailurePolicy, Reading
    from hwbench.deploy import export as run
    from hwbench.deploy import meter, open_calibration, open_validation

    policy, reading = policy or FailurePolicy.RAISE, reading or Reading()
    calibrate, data = calibrate or data or source.data, data or source.data or calibrate
    calibration = validation = None
    if calibrate is not None and precision is Precision.INT8:
        calibration = open_calibration(
            workspace, calibrate, source, count=calibration_clips, seed=seed, policy=policy, reading=reading
        )
    if streaming is not None and source.flow is not None:
        raise InvalidValue(
            "--streaming: the network sees optical flow, which a stream of pictures has not; leave it out"
        )
    if data is not None:
        count = videos if source.weights.trained else videos or _UNTRAINED_VIDEOS
        validation = open_validation(workspace, data, source, count=count, policy=policy, reading=reading)
    return run(
        source,
        out,
        precision=precision,
        calibration=calibration,
        validation=validation,
        variant=variant,
        threads=threads,
        progress=_told(listener),
        runtime=runtime,
        int8=int8,
        meter=meter(workspace),
        streaming=streaming,
    )


def summary(deployed: DeployedModel) -> dict[str, Any]:
    """What ``--json`` prints of an export, but for the time it took."""
    from hwbench.deploy import MANIFEST

    manifest = deployed.manifest
    accuracy, parity = manifest.accuracy, manifest.parity
    return {
        "model": str(deployed.path),
        "manifest": str(deployed.path.with_name(MANIFEST)),
        "architecture": manifest.architecture.name,
        "precision": manifest.precision.value,
        "runtime": manifest.runtime,
        "version": manifest.runtime_version,
        "variant": manifest.variant,
        "weights": manifest.weights.kind,
        "delegates": manifest.delegation.delegates,
        "undelegated": dict(manifest.delegation.undelegated),
        "sqnr_db": round(parity.sqnr_db, 2),
        "max_abs_error": parity.max_abs_error,
        "same_top1": parity.same_top1,
        "centred_sqnr_db": None if parity.centred_sqnr_db is None else round(parity.centred_sqnr_db, 2),
        "parity_reasons": list(parity.reasons),
        "inputs": parity.inputs,
        "top1_before": accuracy.top1_before,
        "top1_after": accuracy.top1_after,
        "top1_reason": accuracy.reason,
        **_precision_of(accuracy),
        "videos": accuracy.videos,
        "calibrated_on": manifest.calibration and f"{manifest.calibration.source} ({manifest.calibration.split})",
        "calibration_clips": manifest.calibration and manifest.calibration.clips,
        "bytes": manifest.bytes,
        "sha256": manifest.sha256,
        **_quantized(manifest.quantization),
        **_streamed(manifest.stream),
        **({} if parity.rounding_sqnr_db is None else {"rounding_sqnr_db": round(parity.rounding_sqnr_db, 2)}),
    }


def _precision_of(accuracy: Accuracy) -> dict[str, float]:
    """The mean average precisions, as ``--json`` prints them; nothing for videos of one class."""
    values = {"mean_ap_before": accuracy.mean_ap_before, "mean_ap_after": accuracy.mean_ap_after}
    return {name: value for name, value in values.items() if value is not None}


def _quantized(how: QuantizationRecord | None) -> dict[str, Any]:
    """How a file became int8, as ``--json`` prints it; nothing for fp32."""
    if how is None:
        return {}
    cost = how.cost
    return {
        "method": how.method,
        "observer": how.observer,
        "observers": {name: round(sqnr_db, 2) for name, sqnr_db in how.observers.items()},
        "fp32_blocks": list(how.fp32_blocks),
        "top1_int8": how.top1_int8,
        "int8_ms": cost and cost.int8_ms,
        "mixed_ms": cost and cost.mixed_ms,
        "cost_ms": cost and cost.difference_ms,
        "cost_reason": cost and cost.reason,
        "blocks": [asdict(block) for block in how.blocks],
    }


def _streamed(stream: StreamRecord | None) -> dict[str, Any]:
    """What a streaming file keeps, as ``--json`` prints it; nothing for others."""
    if stream is None:
        return {}
    return {"states": len(stream.states), "state_bytes": stream.state_bytes, "remembers": stream.remembers}


def _of_space(source: ExportSource) -> bool:
    """Whether a source is made of blocks that spaces are made of, and not a module of somebody else's."""
    from hwbench.specs.kinds.by_hand import is_by_hand

    return isinstance(source.network, Network) and not any(map(is_by_hand, source.network.blocks))


def _check_names(request: ExportRequest) -> None:
    """Refuses names that nothing has or that nothing reads, before the model is opened.

    Raises:
        UnknownName: There is no such decoder.
        MissingDependency: The decoder does not load.
        UsageError: A model that is no checkpoint, and has its function in its name, has a maker.
    """
    from hwbench.data.decoders import get as get_decoder

    if changed(request, "decoder"):
        get_decoder(request.decoder)
    if request.made_by is not None and ModelArgument.of(request.model) is ModelArgument.EXTERNAL:
        raise UsageError(f"--made-by: only for a checkpoint, and {request.model} is none; leave --made-by out")


def _check_source(request: ExportRequest, source: ExportSource) -> None:
    """Refuses what is not for such a source, before anything is calibrated.

    Raises:
        UsageError: Blocks of a model of somebody else's are to be looked at, or a network of a space has a maker; or
            there are no videos, or none to calibrate with, and something is said of them.
    """
    _check_videos(request, source)
    check_made_by(request.made_by, request.model, source.network.blocks, source.network.input)
    if _of_space(source):
        if request.made_by is not None:
            raise UsageError(f"--made-by: {request.model} is made of blocks of a space; leave it out")
    elif request.blocks or request.keep_accuracy is not None:
        raise UsageError(
            f"--blocks and --keep-accuracy are for networks of a space; {request.model} is one graph, of whose "
            "operations --fp32-block keeps some in fp32"
        )


def _check_videos(request: ExportRequest, source: ExportSource) -> None:
    """Raises UsageError where something is said of videos, and this export looks at none or calibrates with none."""
    unread = enumeration(changed(request, "videos", "on_error", "decoder"))
    if unread and request.data is None and request.calibrate is None and source.data is None:
        raise UsageError(
            f"{unread}: only with videos, and {request.model} comes without any; add --data DATA, or leave {unread} out"
        )
    request.check_unread(source.data is not None)
    settled = enumeration(changed(request, "calibrate", "calibration_clips"))
    if settled and source.fine_tuned is not None:
        raise UsageError(
            f"{settled}: {request.model} was trained with the rounding of int8 in it, so the ranges are settled; leave "
            f"{settled} out"
        )


def _variant(workspace: Workspace, source: ExportSource, request: ExportRequest, listener: Listener) -> str:
    """The layout that is asked for, or the fastest on the device that is named."""
    if request.device is None:
        return request.variant
    if not _of_space(source):
        raise InvalidValue(
            f"--device chooses among layouts of the blocks of a space; {request.model} has none of them: give --variant"
        )
    assert isinstance(source.network, Network)
    precision = Precision.parse(request.precision)
    return fastest_on(
        workspace, request.device, source.network, precision, request.variant, listener, runtime=request.runtime
    )


def _say_observer(deployed: DeployedModel, listener: Listener) -> None:
    """Which observer was taken, and why not histograms, where there was a choice."""
    how = deployed.manifest.quantization
    if how is not None and how.observers:
        others = ", ".join(f"{name} {db:.1f} dB" for name, db in how.observers.items() if name != how.observer)
        best = how.observers[how.observer or ""]
        listener.say(f"ranges by {how.observer}: {best:.1f} dB where {others} (--observer says which)")


def _told(listener: Listener) -> Watch:
    return lambda at: listener.progress(StageProgress(STAGES[at.stage], at.done, at.total))
