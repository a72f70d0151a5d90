"""Search spaces: what may be chosen, which networks fit a budget, what a name stands for. Loads no torch."""

from hwbench.spaces.cards import Card, load_card, read_card
from hwbench.spaces.loader import load_space, read_space
from hwbench.spaces.resolve import load_result, resolve
from hwbench.spaces.space import Cell, StagedSpace
from hwbench.spaces.stages import Head, Stage, StageChoice, Stem, round_width

__all__ = [
    "Card",
    "Cell",
    "Head",
    "Stage",
    "StageChoice",
    "StagedSpace",
    "Stem",
    "load_card",
    "load_result",
    "load_space",
    "read_card",
    "read_space",
    "resolve",
    "round_width",
]
