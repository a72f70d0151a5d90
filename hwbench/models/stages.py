"""Blocks of a network, parted into the stages that published checkpoints name."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from hwbench.specs import BlockSpec


def stages_of(blocks: Sequence[BlockSpec], begins: Callable[[BlockSpec], bool]) -> list[list[BlockSpec]]:
    """The blocks in order; a stage begins with the first one, and with every one that ``begins`` says so of."""
    starts = [index for index, block in enumerate(blocks) if index == 0 or begins(block)]
    return [list(blocks[a:b]) for a, b in itertools.pairwise([*starts, len(blocks)])]
