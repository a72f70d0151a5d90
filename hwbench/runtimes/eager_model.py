"""An ``.eager.json`` file, which names a module, in eager PyTorch, for the Python runner."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

from hwbench.runtimes.protocol import Options
from hwbench.runtimes.python_models import ModelFailure, TorchModel
from hwbench.specs import Workload

if TYPE_CHECKING:
    import torch
    from torch import nn

# The factories that an ``.eager.json`` may name, and where each is. The list is closed: a file chooses one of these and
# gives it plain text, and reaches no other code. A factory takes a text and returns a module and an example; it reads
# and writes nothing. Of a workload in fp16 or bf16 the module becomes ``half.Halved``.
WORKLOADS = "hwbench.models:eager_workload"
FACTORIES = {
    WORKLOADS: ("hwbench.models", "eager_workload"),
    "hwbench.testing.models:small_net": ("hwbench.testing.models", "small_net"),
}


class EagerModel(TorchModel):
    """A module in eager PyTorch."""

    def __init__(self, path: str, options: Options) -> None:
        module, example = load_eager(Path(path))
        examples = example if isinstance(example, tuple) else (example,)
        super().__init__(module, [tuple(one.shape) for one in examples], options)

    @staticmethod
    def load_engine(threads: int) -> None:
        """Imports torch and the modules of hwbench."""
        for name in ("torch", "hwbench.models", "hwbench.runtimes.half"):
            importlib.import_module(name)


def load_eager(path: Path) -> tuple[nn.Module, torch.Tensor | tuple[torch.Tensor, ...]]:
    """The module that an ``.eager.json`` names, in eval mode, and an example of its input.

    The file holds ``module``, the name of one of ``FACTORIES``, and ``argument``, the text that it is called with.

    Raises:
        ModelFailure: The file does not say so, or the factory is not one of these.
    """
    values = json.loads(path.read_text())
    name, argument = (values.get(key) for key in ("module", "argument")) if isinstance(values, dict) else (None, None)
    if not isinstance(name, str) or not isinstance(argument, str):
        raise ModelFailure("load", f'{path.name}: expected {{"module": "{next(iter(FACTORIES))}", "argument": "text"}}')
    if name not in FACTORIES:
        raise ModelFailure(
            "load", f"{path.name}: expected a factory inside hwbench ({', '.join(FACTORIES)}), got {name!r}"
        )
    from hwbench.runtimes.half import in_precision

    place, function = FACTORIES[name]
    module, example = getattr(importlib.import_module(place), function)(argument)
    if name == WORKLOADS:
        module = in_precision(module, Workload.parse(argument).precision)
    return module.eval(), example
