"""What the MODEL argument of ``train`` and ``export`` means: the one place that reads it."""

from __future__ import annotations

import os
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from hwbench.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hwbench.specs import BlockSpec, Network, TensorSpec
    from hwbench.workspace import Workspace


class ModelArgument(StrEnum):
    """What the text of a MODEL argument stands for."""

    CHECKPOINT = "checkpoint"
    """A file that ``hwbench train`` wrote, or the folder of its run."""
    EXTERNAL = "external"
    """``torchvision:MODEL``, or ``package.module:function`` of a function that makes a torch module."""
    NETWORK = "network"
    """A network by name, made of blocks, without weights."""

    @classmethod
    def of(cls, text: str) -> ModelArgument:
        """Tells the three apart; whether the file or the name exists is another question."""
        from hwbench.deploy import is_external

        # A name has a colon; anything else can only be meant as a file. os.path, and not Path: a printed architecture
        # is longer than the name of a file may be, at which Path raises.
        if os.path.isfile(text) or os.path.isdir(text) or ":" not in text:
            return cls.CHECKPOINT
        return cls.EXTERNAL if is_external(text) else cls.NETWORK


def checkpoint_file(text: str) -> Path:
    """The checkpoint that is meant; a folder means the one of the run in it."""
    from hwbench.training import CHECKPOINT

    path = Path(text)
    return path / CHECKPOINT if os.path.isdir(text) else path


def resolve_model(workspace: Workspace, text: str, num_classes: int | None = None) -> Network:
    """The network of blocks that a MODEL argument names.

    Args:
        workspace: Where spaces, cards and studies are looked up.
        text: A printed key, ``STUDY:best`` or ``zoo:NAME``.
        num_classes: Width of the logits; a zoo card knows its own.

    Raises:
        UnknownName: No such space, study or card.
        InvalidValue: The text is none of the three, or the architecture is no member of its space.
        InvalidFile: The file behind the name does not validate.
    """
    from hwbench.spaces import resolve

    return resolve(workspace, text, num_classes)


def is_own_function(text: str) -> bool:
    """Whether a MODEL argument names a function that the user wrote, ``package.module:function``."""
    from hwbench.spaces.families.by_hand import is_importable
    from hwbench.specs import ModelName

    name = ModelName.match(text)
    return name is not None and is_importable(name)


def check_made_by(made_by: str | None, path: str, blocks: Iterable[BlockSpec], clip: TensorSpec) -> None:
    """Refuses a function that is named with another clip than that of a checkpoint of it; without one it is fine.

    Raises:
        UsageError: The clips differ.
    """
    from hwbench.specs.kinds.by_hand import is_by_hand, model_of
    from hwbench.specs.model_name import ModelName

    labels = {model_of(block) for block in blocks if is_by_hand(block)}
    names = [name for name in map(ModelName.parse, made_by.split(",") if made_by else ()) if name.label in labels]
    if names and all(name.input not in (None, clip) for name in names):
        plain = replace(names[0], input=None)
        raise UsageError(
            f"--made-by {names[0]}: {path} takes clips {clip.key}; name {plain}, which takes them from there"
        )


def card_name(text: str) -> str | None:
    """The name of the zoo card that is meant; None where none is."""
    head, _, tail = text.strip().partition(":")
    return tail if head == "zoo" else None
