"""``hwbench.verify``: whether an exported file computes on a device what it computes here, or a table still holds."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwbench import lookup
from hwbench.api.listener import SILENT, Listener, StageProgress
from hwbench.api.requests import changed, option, request
from hwbench.errors import InvalidFile, InvalidValue, ParityFailed
from hwbench.printable import enumeration
from hwbench.specs import LOCAL

if TYPE_CHECKING:
    from hwbench.api.table_verification import TableVerification
    from hwbench.deploy import DeployedModel, Verification
    from hwbench.workspace import Workspace

TABLE = ".csv"
# The fields that a table does not read, and those that an exported model does not.
_OF_A_MODEL, _OF_A_TABLE = ("inputs", "threads"), ("rows", "conditions")


@request
class VerifyRequest:
    """Run an exported file on a device and on this machine, and compare; or measure rows of a latency table again.

    Of a file: largest and mean error, SQNR, top-1; it must still be the one that its manifest describes. A stream gets
    clips frame by frame, twice as long as its window, its states carried on both sides. Of a table: how many of the
    rows agree within their intervals, and a verdict; the table and the store stay as they are. Exit status 5 where the
    two do not agree, or the table does not hold.
    """

    model: Path = option(
        argument=True, help="A folder that hwbench export wrote, or the model in it; or a latency table (.csv)."
    )
    device: str | None = option(
        default=None, help="Device: a folder of profiles/; default: local, or that of the table."
    )
    inputs: int = option(default=8, min=1, help="Of a model: clips of noise to run.")
    rows: int = option(default=20, min=1, help="Of a table: rows to measure again.")
    seed: int = option(default=0, min=0, help="Of the noise, or of the choice of rows.")
    threads: int = option(default=1, min=1, help="Of a model: threads of the engine on the device.")
    conditions: str | None = option(
        default=None,
        choices=("stock", "controlled"),
        help="Of a table: stock or controlled, as it was taken; default: the device file's.",
    )

    def validate(self) -> None:
        """Raises InvalidValue where a table is given what only a file reads, or the other way round."""
        unread = enumeration(changed(self, *(_OF_A_MODEL if self.is_table else _OF_A_TABLE)))
        if unread:
            kinds = ("an exported model", "a latency table")
            reads, given = kinds if self.is_table else kinds[::-1]
            raise InvalidValue(f"{unread}: only for {reads}, and {self.model} is {given}; leave {unread} out")

    @property
    def is_table(self) -> bool:
        """Whether a latency table is meant, and no exported file."""
        return self.model.suffix == TABLE


@dataclass(frozen=True)
class VerifyResult:
    """Logits of a file on a device against those of this machine.

    Attributes:
        model: The file.
        device: Where it was run.
        runner: What ran it there.
        precision: Of the arithmetic in the file.
        sha256: Digest of the file.
        verification: Errors, SQNR and top-1 over clips of noise, and whether they are small enough; of a stream over
            the answers behind all frames of the clips.
    """

    model: Path
    device: str
    runner: str
    precision: str
    sha256: str
    verification: Verification

    @property
    def agrees(self) -> bool:
        """Whether the file computes on the device what it computes here."""
        return self.verification.agrees

    def to_json(self) -> dict[str, Any]:
        """The keys that ``hwbench verify --json`` prints of an exported file.

        ``max_relative_error`` is None where all logits here are 0 and those of the device are not.
        """
        relative = self.verification.max_relative_error
        return {
            "model": str(self.model),
            "device": self.device,
            "runner": self.runner,
            "precision": self.precision,
            "sha256": self.sha256,
            **asdict(self.verification),
            "max_relative_error": relative if math.isfinite(relative) else None,
            "reasons": list(self.verification.reasons),
        }

    def check(self) -> None:
        """Raises ParityFailed where the file computes something else."""
        if not self.agrees:
            frame = self.verification.differs_from
            centred = self.verification.centred_sqnr_db
            apart = "" if centred is None else f", in what tells the clips apart {centred:.1f} dB"
            place = "" if frame is None else f" from frame {frame} of {self.verification.frames} on"
            raise ParityFailed(
                f"{self.model} computes something else on {self.device} than here{place}: largest error "
                f"{self.verification.max_abs_error:.3g}, SQNR {self.verification.sqnr_db:.1f} dB{apart}; the engine "
                "there is another version or broken: hwbench doctor"
            )


def verify(
    request: VerifyRequest, listener: Listener = SILENT, *, workspace: Workspace | str | Path | None = None
) -> VerifyResult | TableVerification:
    """Runs an exported file on a device and here, or measures rows of a latency table again.

    Args:
        request: Which file or table, where, and on how many clips of noise or rows.
        listener: Hears how many clips or rows are done, and what the device has to say.
        workspace: Holds devices and built runners; default: the one around the current folder.

    Returns:
        The comparison, of a table a ``TableVerification``. What does not agree is a result, and no error: ``check``
        raises it.

    Raises:
        InvalidFile: No exported file there, or not the one that its manifest describes; or the table does not validate.
        InvalidValue: The table or the device is emulated.
        NotMeasured: The table has no latency.
        UnknownName: No such device.
        MissingDependency: The engine that runs the file is not installed on this machine.
        DeviceError: The device does not answer, or went away.
        CheckFailed: The file does not run, on the device or here; or none of the rows could be measured.
    """
    from hwbench.workspace import Workspace

    workspace = Workspace.at(workspace)
    if request.is_table:
        return _verify_table(request, listener, workspace)
    return _verify_model(request, listener, workspace)


def _verify_table(request: VerifyRequest, listener: Listener, workspace: Workspace) -> TableVerification:
    from hwbench.api.profile_request import parse_conditions
    from hwbench.api.table_verification import verify_table

    return verify_table(
        workspace,
        request.model,
        device=request.device,
        rows=request.rows,
        seed=request.seed,
        conditions=parse_conditions(request.conditions),
        listener=listener,
    )


def _verify_model(request: VerifyRequest, listener: Listener, workspace: Workspace) -> VerifyResult:
    from hwbench.deploy import verify as run
    from hwbench.devices import load_device
    from hwbench.measure.bench import open_bench
    from hwbench.measure.cache import engine_version
    from hwbench.measure.carried import check_runtime

    deployed = _opened(request.model)
    device, manifest = request.device or LOCAL, deployed.manifest
    engine_version(manifest.runtime)  # this machine runs the file as well
    place, stage = load_device(workspace, device), f"verify on {device}"
    check_runtime(place, manifest.runtime, of_file=True)
    with open_bench(
        place,
        manifest.runtime,
        cache_dir=workspace.cache,
        threads=request.threads,
        precisions=(manifest.precision,),
        report=listener.say,
    ) as bench:
        listener.progress(StageProgress(stage, 0, request.inputs))
        verification = run(
            deployed,
            bench,
            inputs=request.inputs,
            seed=request.seed,
            progress=lambda done, total: listener.progress(StageProgress(stage, done, total)),
        )
        runner = bench.runner.label
    for reason in verification.reasons:
        listener.say(reason)
    return VerifyResult(deployed.path, device, runner, manifest.precision.value, manifest.sha256, verification)


def _opened(model: Path) -> DeployedModel:
    """The exported file that is meant."""
    from hwbench.deploy import MANIFEST, DeployedModel
    from hwbench.runtimes import of_file

    is_file = lookup.is_file(model)
    folder = model.parent if is_file else model
    if not lookup.is_folder(folder):
        kind = "file" if of_file(model) or model.name == MANIFEST else "folder"
        raise InvalidFile(f"no {kind} {model}; make one: hwbench export CHECKPOINT --out DIR")
    deployed = DeployedModel.open(folder)
    if is_file and not model.samefile(deployed.path) and model.name != MANIFEST:
        raise InvalidFile(
            f"{model} is not the model of {folder}, which is {deployed.path.name}; give that or the folder"
        )
    return deployed
