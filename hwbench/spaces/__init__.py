"""Search spaces: what may be chosen, which networks fit a budget, what a name stands for. Loads no torch."""

from hwbench.spaces.cards import Card, load_card, read_card
from hwbench.spaces.downloads import FetchedWeights, fetch_weights
from hwbench.spaces.family import Ends, Family, families
from hwbench.spaces.feasible import FeasibleSet
from hwbench.spaces.loader import load_named, load_space, open_space, open_spaces, read_space, spaces_with_classes
from hwbench.spaces.resolve import load_result, resolve
from hwbench.spaces.space import InputSize, StagedSpace
from hwbench.spaces.stages import Stage, StageChoice
from hwbench.spaces.union import SpaceUnion

__all__ = [
    "Card",
    "InputSize",
    "Ends",
    "FetchedWeights",
    "Family",
    "FeasibleSet",
    "Stage",
    "StageChoice",
    "SpaceUnion",
    "StagedSpace",
    "families",
    "fetch_weights",
    "load_card",
    "load_result",
    "load_named",
    "load_space",
    "open_space",
    "open_spaces",
    "read_card",
    "read_space",
    "resolve",
    "spaces_with_classes",
]
