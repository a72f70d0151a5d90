"""A trained network in a file: weights and everything needed to build, feed and judge it.

The file is ``torch.save`` of plain values and tensors and is read with ``weights_only=True``: loading runs no code of
the file's. It holds ``format``, ``schema``, ``meta`` (a JSON text) and ``weights`` (name -> tensor), and a digest of
both, so that damage does not pass for weights.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from hwbench import lookup
from hwbench.data import ClipSpec, Normalisation, PictureSpec, Reading
from hwbench.data.flow_stream import FlowStream
from hwbench.documents import read_json
from hwbench.errors import HwbenchError, InvalidFile, InvalidValue
from hwbench.models.files import read_tensors
from hwbench.printable import printable, shown
from hwbench.specs import BlockSpec, Network, TensorSpec
from hwbench.training.quantized import Quantization, unpacked
from hwbench.training.recipe import Recipe
from hwbench.training.state import begun_in
from hwbench.workspace import write_bytes

Weights = Mapping[str, torch.Tensor]

_FORMAT = "hwbench-checkpoint"
# A checkpoint of quantisation-aware training is of schema 2, any other of schema 1.
_SCHEMAS = (1, 2)


@dataclass(frozen=True)
class Checkpoint:
    """What is known of trained weights.

    Attributes:
        network: Name, blocks and input of the network.
        classes: Class names in the order of the logits.
        recipe: How it was trained; the weights are the running average if the recipe has one.
        metrics: ``top1``, ``top5`` (shares, on the validation videos), ``chance``, ``epochs``, ``steps``,
            ``seconds`` and what ``VideoScores.measures`` says; older files lack some.
        clip: How clips were cut.
        source: The data it was trained on, as the user named it.
        facts: What made the run this one (``hwbench.training.loop.fingerprint``), name -> text.
        unreadable: Videos that could not be read, path -> cause.
        normalisation: What the pixels go through before the network.
        picture: How frames are scaled and cut.
        flow: Where the optical flow came from that it sees; None: it sees pictures.
        split_seed: Seed by which its data was split into training and validation videos; None: that of the recipe.
        quantization: How it was trained with the rounding of int8 in it; None where it was not.
        path: The file; empty before it is saved. ``sha256`` is the digest of that file.
    """

    network: Network
    classes: tuple[str, ...]
    recipe: Recipe
    clip: ClipSpec
    metrics: Mapping[str, float] = field(default_factory=dict)
    source: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)
    unreadable: Mapping[str, str] = field(default_factory=dict)
    normalisation: Normalisation = field(default_factory=Normalisation)
    quantization: Quantization | None = None
    path: Path = field(default_factory=Path)
    sha256: str = ""
    picture: PictureSpec = field(default_factory=PictureSpec)
    flow: FlowStream | None = None
    split_seed: int | None = None

    @property
    def data_seed(self) -> int:
        """Seed that splits its data as it was split in the training."""
        return self.recipe.seed if self.split_seed is None else self.split_seed

    @property
    def trained_on(self) -> str:
        """``VideoList.identity`` of the videos that it was trained on; empty where it does not say."""
        return self.facts.get("data", "")

    def reading(self, asked: Reading | None = None) -> Reading:
        """How its clips are read: what is asked for, and the flow that it was trained on unless another is.

        Raises:
            InvalidValue: It was trained on pictures, and flow is asked for.
        """
        asked = asked or Reading()
        if asked.flow is not None and self.flow is None:
            raise InvalidValue(f"--modality: {self.path} was trained on pictures; leave --modality out")
        return asked if asked.flow is not None else replace(asked, flow=self.flow)


def save_checkpoint(path: Path, checkpoint: Checkpoint, weights: Weights) -> Checkpoint:
    """Writes the file (all of it or nothing) and gives the checkpoint with its path and digest.

    Raises:
        WorkspaceError: No rights or no room.
    """
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}
    meta = json.dumps(_to_meta(checkpoint), sort_keys=True)
    buffer = io.BytesIO()
    schema = _SCHEMAS[checkpoint.quantization is not None]
    values = {"format": _FORMAT, "schema": schema, "meta": meta, "weights": tensors}
    torch.save({**values, "digest": _digest(meta, tensors)}, buffer)
    write_bytes(path, buffer.getvalue())
    return _located(checkpoint, path, buffer.getvalue())


def find_checkpoint(path: Path, expected: str) -> Checkpoint | None:
    """The checkpoint that a file is; None: a file of torch that is none.

    Raises:
        InvalidFile: No such file, damaged, or of a newer schema; the message names it, and what was ``expected``.
    """
    _, values = read_tensors(path, expected)
    return load_checkpoint(path)[0] if values.get("format") == _FORMAT else None


def load_checkpoint(path: Path) -> tuple[Checkpoint, dict[str, torch.Tensor]]:
    """Reads what ``save_checkpoint`` wrote: the checkpoint and its weights, on the CPU.

    Raises:
        InvalidFile: No such file, damaged, of a newer schema, or another kind of file; the message names it.
    """
    if not lookup.exists(path) and begun_in(path.parent):
        raise InvalidFile(f"{path}: that training has not ended; the hwbench train that began it goes on with it")
    data, values = read_tensors(path, "a checkpoint; make one: hwbench train ARCHITECTURE --data DATA")
    if values.get("format") != _FORMAT:
        raise InvalidFile(f"{path}: a file of torch, but not a checkpoint of hwbench")
    if values.get("schema") not in _SCHEMAS:
        raise InvalidFile(
            f"{path}: a checkpoint of schema {values.get('schema')}, this version reads {_SCHEMAS[-1]}; update hwbench"
        )
    try:
        meta, weights = values["meta"], dict(values["weights"])
        for name, tensor in weights.items():
            if not _is_plain(tensor):
                raise InvalidFile(f"weights {shown(name, 80)}: expected a dense, contiguous tensor")
        if values["digest"] != _digest(meta, weights):
            raise InvalidFile(f"{path}: damaged: its contents do not match their digest; train or copy it again")
        checkpoint = _from_meta(read_json(meta))
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise InvalidFile(f"{path}: damaged checkpoint: {type(error).__name__}: {printable(str(error), 300)}") from None
    except HwbenchError as error:
        said = printable(str(error), 1000)
        raise InvalidFile(said if str(path) in said else f"{path}: damaged checkpoint: {said}") from None
    return _located(checkpoint, path, data), weights


def build(checkpoint: Checkpoint, weights: Weights) -> nn.Module:
    """The trained network in eval mode, with rounding if it was trained so: (N, 3, T, H, W) -> logits (N, classes).

    Raises:
        InvalidFile: The weights are not those of the network; with rounding also where they come from another version
            of hwbench, torch or torchao: parts of the deploy form and of its graph have other names there.
    """
    if checkpoint.quantization is None:
        return _loaded(checkpoint, _network(checkpoint), weights)
    rounding, _ = unpacked(weights)
    module = checkpoint.quantization.module(checkpoint.network, build_start(checkpoint, weights))
    return _loaded(checkpoint, module, rounding)


def build_start(checkpoint: Checkpoint, weights: Weights) -> nn.Module:
    """The network in fp32 that quantisation-aware training started from, in eval mode.

    Raises:
        InvalidFile: The weights are not those of the network.
    """
    return _loaded(checkpoint, _network(checkpoint), unpacked(weights)[1])


def _network(checkpoint: Checkpoint) -> nn.Module:
    from hwbench import models

    module: nn.Module = models.network(checkpoint.network, dropout=checkpoint.recipe.dropout)
    return module


def _loaded(checkpoint: Checkpoint, module: nn.Module, weights: Weights) -> nn.Module:
    try:
        module.load_state_dict(dict(weights))
    except RuntimeError as error:
        lines = " ".join(str(error).split())
        raise InvalidFile(f"{checkpoint.path}: weights of another network: {lines[:300]}") from None
    return module.eval()


def _located(checkpoint: Checkpoint, path: Path, data: bytes) -> Checkpoint:
    return replace(checkpoint, path=path, sha256=hashlib.sha256(data).hexdigest())


def _to_meta(checkpoint: Checkpoint) -> dict[str, Any]:
    network, quantization = checkpoint.network, checkpoint.quantization
    return {
        **({} if quantization is None else {"quantization": asdict(quantization)}),
        # Fields that were added later are written where they say something, so that files of before stay as they were.
        **({} if checkpoint.picture == PictureSpec() else {"picture": checkpoint.picture.to_plain()}),
        **({} if checkpoint.flow is None else {"flow": checkpoint.flow.source}),
        **({} if checkpoint.split_seed is None else {"split_seed": checkpoint.split_seed}),
        "network": network.name,
        "blocks": [block.key for block in network.blocks],
        "input": network.input.key,
        "classes": list(checkpoint.classes),
        "recipe": asdict(checkpoint.recipe),
        "metrics": dict(checkpoint.metrics),
        "clip": checkpoint.clip.to_plain(),
        "source": checkpoint.source,
        "facts": dict(checkpoint.facts),
        "unreadable": dict(checkpoint.unreadable),
        "normalisation": asdict(checkpoint.normalisation),
    }


def _from_meta(meta: Mapping[str, Any]) -> Checkpoint:
    blocks = tuple(BlockSpec.parse(key) for key in meta["blocks"])
    quantization = meta.get("quantization")
    mean, std = (tuple(float(v) for v in meta["normalisation"][key]) for key in ("mean", "std"))
    return Checkpoint(
        network=Network(str(meta["network"]), blocks, TensorSpec.parse(meta["input"])),
        classes=tuple(str(name) for name in meta["classes"]),
        recipe=Recipe(**meta["recipe"]),
        metrics={str(key): float(value) for key, value in meta["metrics"].items()},
        clip=ClipSpec.from_plain(meta["clip"]),
        source=str(meta["source"]),
        facts={str(key): str(value) for key, value in meta["facts"].items()},
        unreadable={str(key): str(value) for key, value in meta["unreadable"].items()},
        normalisation=Normalisation(mean, std),
        quantization=None if quantization is None else _quantization(quantization),
        picture=PictureSpec() if "picture" not in meta else PictureSpec.from_plain(meta["picture"]),
        flow=FlowStream(str(meta["flow"])) if "flow" in meta else None,
        split_seed=int(meta["split_seed"]) if "split_seed" in meta else None,
    )


def _quantization(values: Mapping[str, Any]) -> Quantization:
    blocks = tuple(str(name) for name in values["fp32_blocks"])
    return Quantization(str(values["start"]), str(values["variant"]), blocks)


def _is_plain(tensor: object) -> bool:
    """Whether it is a tensor as ``save_checkpoint`` writes it, whose values all lie in the file.

    A tensor that was expanded says of one value that it is terabytes.
    """
    if not isinstance(tensor, torch.Tensor) or tensor.layout is not torch.strided or tensor.device.type != "cpu":
        return False
    lazy = tensor.is_conj() or tensor.is_neg() or tensor.is_quantized
    return tensor.is_contiguous() and not lazy


def _digest(meta: str, weights: Weights) -> str:
    digest = hashlib.sha256(meta.encode())
    for name in sorted(weights):
        tensor = weights[name]
        digest.update(f"{name}:{tensor.dtype}:{tuple(tensor.shape)}".encode())
        digest.update(tensor.view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
