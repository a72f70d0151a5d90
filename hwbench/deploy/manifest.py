"""What stands beside a deployed model: everything needed to feed it, read its answer and judge it.

``manifest.json`` is one JSON object, the fields of ``Manifest`` by name. It is read strictly, and only together with
the file that it describes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hwbench.deploy.atomic_export import settle
from hwbench.deploy.file_names import MANIFEST, model_name
from hwbench.deploy.manifest_records import (
    Accuracy,
    CalibrationRecord,
    InputForm,
    NetworkRecord,
    ParityRecord,
    QuantizationRecord,
    StreamRecord,
    WeightsOrigin,
)
from hwbench.deploy.records import from_plain, to_plain
from hwbench.documents import read_json
from hwbench.errors import InvalidFile, InvalidValue, UnknownName
from hwbench.measure.cache import file_sha256
from hwbench.runtimes import check_given
from hwbench.specs import DelegationReport, Precision, TensorSpec
from hwbench.workspace import write_text

SCHEMA = 2


@dataclass(frozen=True)
class Manifest:
    """The contents of ``manifest.json``.

    Attributes:
        schema: Number of this form.
        sha256: Digest of the model file; ``bytes`` is its size.
        precision: Of the arithmetic inside; input and output are float32 always.
        runtime: What runs the file, in the version of ``versions``.
        variant: Layout of temporal convolutions.
        labels: Class names in the order of the logits; empty where weights are random, or published without names.
        versions: Package -> version that made the file, and Python's.
        calibration: Where ranges of activations come from; None in fp32 and after quantisation-aware training.
        quantization: How it became int8; None in fp32.
        stream: Of a file that takes one new frame at a time; else None, and no key of the file.
    """

    schema: int
    sha256: str
    bytes: int
    precision: Precision
    runtime: str
    runtime_version: str
    variant: str
    architecture: NetworkRecord
    weights: WeightsOrigin
    input: InputForm
    output: str
    labels: tuple[str, ...]
    versions: Mapping[str, str]
    delegation: DelegationReport
    parity: ParityRecord
    accuracy: Accuracy
    calibration: CalibrationRecord | None
    quantization: QuantizationRecord | None
    stream: StreamRecord | None = None

    def write(self, path: Path) -> None:
        """Writes the file, all of it or nothing."""
        values = to_plain(self)
        values["input"]["clip"] = self.input.clip.to_plain()  # without what was added later and says nothing
        if self.quantization is not None and not self.quantization.observers:
            del values["quantization"]["observers"]  # as in files of before, which anybody reads
        if self.parity.top1_classes is None:
            for name in (*_ABOUT_CLIPS, "reasons"):
                del values["parity"][name]
        if self.parity.rounding_sqnr_db is None:
            del values["parity"]["rounding_sqnr_db"]
        if self.stream is None:
            del values["stream"]
        for name in _PRECISIONS:
            if values["accuracy"][name] is None:
                del values["accuracy"][name]
        write_text(path, json.dumps(values, indent=2, allow_nan=False) + "\n")

    @classmethod
    def read(cls, path: Path) -> Manifest:
        """Reads what ``write`` wrote.

        Raises:
            InvalidFile: No such file, no JSON, another schema, unknown or missing keys, or a value that does not fit.
        """
        try:
            values = read_json(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise InvalidFile(
                f"no {path}: expected a model that hwbench export wrote, with its {path.name} beside it"
            ) from None
        except (OSError, ValueError) as error:
            raise InvalidFile(f"{path}: cannot be read as JSON: {error}; export the model again") from None
        if isinstance(values, dict) and values.get("schema", SCHEMA) not in (1, SCHEMA):
            raise InvalidFile(
                f"{path}: expected schema {SCHEMA}, got {values['schema']!r}; update hwbench or export the model again"
            )
        try:
            manifest = from_plain(cls, _updated(values))
            _check_sizes(manifest)
        except InvalidValue as error:
            raise InvalidFile(f"{path}: {error}; export the model again") from None
        return manifest


def _check_sizes(manifest: Manifest) -> None:
    """Raises InvalidValue where a size is that of no file, or the input is not the network's."""
    if manifest.bytes < 1:
        raise InvalidValue(f"bytes: expected at least 1, got {manifest.bytes}")
    clip, shape = TensorSpec.parse(manifest.architecture.input), manifest.input.shape
    expected = clip.folded if manifest.stream is None else (1, *clip.folded[1:])
    if shape != expected or len(manifest.input.mean) != shape[1]:
        raise InvalidValue(f"input.shape: expected {[*expected]} of a network for {clip.key}, got {[*shape]}")
    if math.prod(shape) > _MAX_VALUES:
        raise InvalidValue(f"input.shape: expected at most {_MAX_VALUES} values, got {[*shape]}")


# Engines count the values of a tensor with 32 bits.
_MAX_VALUES = 2**31 - 1
# Keys of ``accuracy`` where videos may show several classes.
_PRECISIONS = ("mean_ap_before", "mean_ap_after")
# Keys of ``parity`` that files of before have none of.
_ABOUT_CLIPS = {"centred_sqnr_db", "variation_db", "file_variation_db", "top1_classes"}


def _updated(values: Any) -> Any:
    """The contents of a file of schema 1, or without the keys that may be left out, as of today."""
    if isinstance(values, dict):
        values = {"stream": None, **values}
        if isinstance(values["stream"], dict) and isinstance(states := values["stream"].get("states"), list):
            typed = [{"dtype": "float32", **state} if isinstance(state, dict) else state for state in states]
            values["stream"] = {**values["stream"], "states": typed}
    if isinstance(values, dict) and isinstance(values.get("quantization"), dict):
        values = {**values, "quantization": {"observers": {}, **values["quantization"]}}
    if isinstance(values, dict) and isinstance(values.get("accuracy"), dict):
        values = {**values, "accuracy": {**dict.fromkeys(_PRECISIONS), **values["accuracy"]}}
    if isinstance(values, dict) and isinstance(values.get("input"), dict):
        form = values["input"]
        if isinstance(form.get("clip"), dict):
            added = {"convention": "hwbench", "target_fps": None}
            values = {**values, "input": {**form, "clip": {**added, **form["clip"]}}}
    if isinstance(values, dict) and isinstance(parity := values.get("parity"), dict) and not _ABOUT_CLIPS & {*parity}:
        values = {**values, "parity": {**dict.fromkeys(_ABOUT_CLIPS), "reasons": [], **parity}}
    if isinstance(values, dict) and isinstance(values.get("parity"), dict):
        values = {**values, "parity": {"rounding_sqnr_db": None, **values["parity"]}}
    if not isinstance(values, dict) or values.get("schema") != 1 or not isinstance(values.get("parity"), dict):
        return values
    quantization = (
        to_plain(QuantizationRecord("ptq", "histogram")) if values.get("precision") == Precision.INT8 else None
    )
    parity = {"fp64_error": None, "mean_abs_error": None, **values["parity"]}
    return {"quantization": quantization, **values, "schema": SCHEMA, "parity": parity}


@dataclass(frozen=True)
class DeployedModel:
    """A file that was checked, and what is known of it."""

    path: Path
    manifest: Manifest

    @classmethod
    def open(cls, folder: Path) -> DeployedModel:
        """Reads an exported folder.

        Raises:
            InvalidFile: A file is missing or damaged, or the two do not belong together.
        """
        if not (folder / MANIFEST).exists():
            settle(folder)
        manifest = Manifest.read(folder / MANIFEST)
        try:
            path = folder / model_name(manifest.runtime)
        except UnknownName as error:
            advice = "install the package that it comes from, or export again"
            raise InvalidFile(f"{folder / MANIFEST}: {error}; {advice}") from None
        check_given(manifest.runtime, path)
        if not path.is_file():
            raise InvalidFile(f"no file {path}, which {MANIFEST} beside it describes; export it again")
        if file_sha256(path) != manifest.sha256:
            raise InvalidFile(f"{path} is not the file that {MANIFEST} describes (sha256); export it again")
        if (size := path.stat().st_size) != manifest.bytes:
            raise InvalidFile(
                f"{folder / MANIFEST}: bytes: expected {size}, the size of {path.name}, got {manifest.bytes}; export "
                "the model again"
            )
        return cls(path, manifest)
