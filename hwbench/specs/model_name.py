"""Names of models that a user wrote: ``package.module:function``. Only the user's own words name code to import.

A name is read from a command line or a request. Tables, studies, caches and checkpoints hold keys of blocks, from which
no name can be read back; a process of ours is handed the names by the one that started it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from hwbench.errors import InvalidValue
from hwbench.specs.tensor import TensorSpec

# What stands before a colon elsewhere: cards, and torchvision's models.
_OTHERS = ("zoo", "torchvision")
# What stands behind the name of a study.
_OF_STUDY = "best"
_NOT_IN_LABEL = re.compile(r"[^A-Za-z0-9.]+")


@dataclass(frozen=True)
class ModelName:
    """A function that makes a ``torch.nn.Module``: (N, C, T, H, W) -> logits (N, classes).

    Args:
        module: Dotted name of the module of Python.
        function: Name of the function in it.
        input: One clip, from behind the ``@``; None where the name does not say, and the model must.
    """

    module: str
    function: str
    input: TensorSpec | None = None

    @classmethod
    def match(cls, text: str) -> ModelName | None:
        """Reads ``package.module:function`` or ``package.module:function@1x3x4x48x48``; None for any other text.

        Raises:
            InvalidValue: What stands behind the ``@`` is no clip.
        """
        name, at, clip = text.strip().partition("@")
        module, colon, function = name.partition(":")
        words = [*module.split("."), function]
        if not colon or module in _OTHERS or function == _OF_STUDY or not all(word.isidentifier() for word in words):
            return None
        return cls(module, function, TensorSpec.parse(clip) if at else None)

    @classmethod
    def parse(cls, text: str) -> ModelName:
        """Reads what ``match`` reads.

        Raises:
            InvalidValue: The text is no such name.
        """
        name = cls.match(text)
        if name is None:
            raise InvalidValue(f"expected package.module:function, which makes a torch module, got {text!r}")
        return name

    @property
    def label(self) -> str:
        """The name without its clip as a word of a block's key and as the name of a space: ``package.module.function``.

        Names that differ in underlines only have one label, which is for readers.
        """
        return _NOT_IN_LABEL.sub("-", f"{self.module}.{self.function}").strip("-")

    def __str__(self) -> str:
        clip = "" if self.input is None else f"@{self.input.key}"
        return f"{self.module}:{self.function}{clip}"


# (name, number of classes) of the models that the user named to this process, in the order of loading.
_named: dict[tuple[str, int | None], None] = {}


def note_named(name: ModelName, num_classes: int | None) -> None:
    """Notes that a model was loaded by its name, for processes that are started to build its blocks."""
    _named[str(name), num_classes] = None


def named_models(labels: Iterable[str]) -> list[tuple[str, int | None]]:
    """(name, number of classes) of the models with these labels that were named to this process."""
    wanted = set(labels)
    return [(name, classes) for name, classes in _named if ModelName.parse(name).label in wanted]
