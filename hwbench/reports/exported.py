"""A model that was exported: what its manifest says, and whether the file is still the one it says it of."""

from __future__ import annotations

import hashlib
import math
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from hwbench import lookup
from hwbench.documents import read_json
from hwbench.errors import InvalidFile
from hwbench.runtimes import get, names, of_file

MANIFEST = "manifest.json"
MODEL = "model.pte"


@dataclass(frozen=True)
class ExportedModel:
    """An exported file. ``top1_before`` is of the trained network, ``top1_after`` of the file; fractions 0-1, over
    ``videos`` of ``source``; None with the ``reason``. ``sqnr_db`` compares the outputs of both. ``recipe`` is how it
    was trained.

    ``num_bytes`` is None where the file is gone; ``doubts`` says in words what does not fit together.
    """

    path: Path
    precision: str
    sha256: str
    num_bytes: int | None
    top1_before: float | None
    top1_after: float | None
    videos: int
    reason: str
    sqnr_db: float | None
    architecture: str
    recipe: Mapping[str, object]
    source: str
    doubts: tuple[str, ...]


def read_exported(path: Path) -> ExportedModel:
    """Reads the manifest of an exported model.

    Args:
        path: The folder of the export, or a file in it.

    Raises:
        InvalidFile: There is no manifest, or it does not describe a model.
    """
    folder = path if lookup.is_folder(path) else path.parent
    manifest = folder / MANIFEST
    try:
        values = read_json(manifest.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InvalidFile(
            f"{path}: expected the folder of an exported model, found no {MANIFEST}; "
            f"make one: hwbench export CHECKPOINT --precision int8 --out {_place(path)}"
        ) from None
    except (OSError, ValueError) as error:
        raise InvalidFile(f"{manifest}: cannot be read: {error}; export the model again") from None
    if not isinstance(values, dict) or not isinstance(values.get("sha256"), str):
        raise InvalidFile(f"{manifest}: expected an object with the sha256 of a model; export the model again")
    model = path if of_file(path) else folder / _model_name(values)
    doubts, num_bytes = _check(model, values["sha256"])
    recipe, tested = _first(values, "recipe"), values.get("accuracy")
    return ExportedModel(
        path=model,
        precision=str(values.get("precision", "unknown")),
        sha256=values["sha256"],
        num_bytes=num_bytes,
        top1_before=_number(values, "top1_before"),
        top1_after=_number(values, "top1_after"),
        videos=int(_number(values, "videos") or 0),
        reason=_text(_first(values, "reason")),
        sqnr_db=_number(values, "sqnr_db"),
        architecture=_text(values.get("architecture")),
        recipe=recipe if isinstance(recipe, dict) else {},
        source=_text(tested.get("source")) if isinstance(tested, dict) else "",
        doubts=doubts,
    )


def _place(path: Path) -> str:
    """Where an export may go, as a word of a command line: the folder itself, or one beside a file of no export."""
    place = path if of_file(path) is None else path.with_name(path.name.partition(".")[0] or path.name)
    while lookup.is_file(place) or lookup.is_file(place / MODEL):
        whole = place if place.name not in ("", "..") else place.resolve()
        place = whole.with_name(f"{whole.name}-int8")
    return shlex.quote(str(place))


def _model_name(values: Mapping[str, object]) -> str:
    name = values.get("model")
    if isinstance(name, str) and of_file(Path(name)):
        return Path(name).name
    runtime = values.get("runtime")
    known = isinstance(runtime, str) and runtime in names()
    return Path(MODEL).stem + get(str(runtime)).capabilities.suffix if known else MODEL


def _check(model: Path, sha256: str) -> tuple[tuple[str, ...], int | None]:
    try:
        data = model.read_bytes()
    except OSError:
        return (f"{model} is not there; the numbers are those of its {MANIFEST}",), None
    if hashlib.sha256(data).hexdigest() != sha256:
        return (f"{model} is not the file that its {MANIFEST} describes (sha256 differs); export it again",), len(data)
    return (), len(data)


def _number(values: Mapping[str, object], key: str) -> float | None:
    """The number of that name at any depth."""
    value = _first(values, key)
    known = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if known else None  # type: ignore[arg-type]


def _first(values: Mapping[str, object], key: str) -> object:
    return next((value for name, value in _pairs(values) if name == key), None)


def _pairs(values: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """All keys and values, outer ones first."""
    yield from values.items()
    for value in values.values():
        if isinstance(value, dict):
            yield from _pairs(value)


def _text(value: object) -> str:
    if isinstance(value, dict):
        value = value.get("key") or value.get("name")
    return value if isinstance(value, str) else ""
