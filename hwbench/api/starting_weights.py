"""What ``hwbench train --weights`` begins with: published weights, the state dict of a model by hand, or a checkpoint,
which tells how it saw videos.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hwbench import lookup
from hwbench.api.listener import Listener
from hwbench.errors import InvalidValue

if TYPE_CHECKING:
    from hwbench.data import ClipSpec, Normalisation, PictureSpec, Reading
    from hwbench.models import PublishedWeights
    from hwbench.models.hand_weights import HandWeights
    from hwbench.spaces.cards import Card
    from hwbench.specs import Network
    from hwbench.training import Checkpoint, Data, Recipe, StartingWeights
    from hwbench.workspace import Workspace


@dataclass(frozen=True)
class GivenWeights:
    """Weights in a file, and the checkpoint that they are of; None: they were trained elsewhere."""

    weights: PublishedWeights | HandWeights
    checkpoint: Checkpoint | None

    @classmethod
    def of(cls, path: Path, network: Network, listener: Listener) -> GivenWeights:
        """The weights in a file that ``network`` should begin with; ``listener`` hears what is strange about them.

        Raises:
            InvalidFile: No such file, damaged, or weights of something else.
            InvalidValue: A checkpoint that was trained with the rounding of int8, or one of a model by hand for another
                kind of network.
        """
        from hwbench.models.by_hand import is_by_hand_network
        from hwbench.models.hand_weights import HandWeights
        from hwbench.models.published import EXPECTED, read_published
        from hwbench.training.checkpoint import find_checkpoint, load_checkpoint

        by_hand = is_by_hand_network(network.blocks)
        checkpoint = find_checkpoint(path, _checkpoint_of(network.name) if by_hand else EXPECTED)
        if checkpoint is not None and checkpoint.quantization is not None:
            raise InvalidValue(
                f"--weights: {path} was trained with the rounding of int8; give the checkpoint that it began from"
            )
        if checkpoint is not None and is_by_hand_network(checkpoint.network.blocks) != by_hand:
            kinds = ("is made of hwbench's own blocks", "is made by a function of yours")
            raise InvalidValue(
                f"--weights: {path} is of {checkpoint.network.name}, which {kinds[not by_hand]}, and {network.name} "
                f"{kinds[by_hand]}; give a checkpoint of {network.name}"
            )
        if checkpoint is not None and by_hand:
            weights = load_checkpoint(path)[1]
            return cls(HandWeights(path, checkpoint.sha256, checkpoint.network.num_classes, weights), checkpoint)
        if by_hand:
            return cls(HandWeights.read(path, network), None)
        published = read_published(path)
        for doubt in published.doubts:
            listener.say(f"{path}: {doubt}")
        return cls(published, checkpoint)

    def reading(self, asked: Reading) -> Reading:
        """How videos are read: as they are asked for, and as flow where the checkpoint was trained on flow.

        Raises:
            InvalidValue: Flow is asked for, and the weights take pictures.
        """
        if self.checkpoint is not None:
            return self.checkpoint.reading(asked)
        if asked.flow is not None:
            raise InvalidValue("--weights: published weights take pictures; leave --weights out with --modality flow")
        return asked

    def seen(
        self, network: Network, clip: ClipSpec | None, card: Card | None, listener: Listener
    ) -> tuple[ClipSpec | None, PictureSpec, Normalisation]:
        """How clips are cut, frames are scaled and pixels normalised: as in the training that the weights come from.

        Args:
            network: Whose frames a clip has.
            clip: How it is asked for; None: it is not.
            card: Of the zoo, for published weights of its network; None: there is none.
            listener: Hears what is assumed of the state dict of a model by hand.

        Raises:
            InvalidValue: The ``input_mean`` or ``input_std`` of a model by hand is wrong.
        """
        from hwbench.data import Normalisation, PictureSpec
        from hwbench.models.by_hand import assumed_pixels, is_by_hand_network

        before = self.checkpoint
        if before is not None:
            return clip or replace(before.clip, frames=network.input.t), before.picture, before.normalisation
        if card is not None:
            return clip or card.clip(network.input.t), card.picture(), card.normalisation()
        own, assumed = own_normalisation(network), Normalisation()
        if own is None and is_by_hand_network(network.blocks):
            listener.say(assumed_pixels(network.name, assumed.mean[0], assumed.std[0]))
        return clip, PictureSpec(), own or assumed

    def start(self, network: Network, data: str, new_head: bool) -> StartingWeights:
        """The beginning of a run.

        Raises:
            InvalidValue: The weights have another number of classes than the data, or ``new_head`` is asked for and the
                model by hand ends with no layer that is as wide.
            InvalidFile: They are those of another network.
        """
        from hwbench.training import StartingWeights

        given = self.weights
        if not new_head and given.num_classes not in (None, network.num_classes):
            raise InvalidValue(
                f"{given.path} has {given.num_classes} classes, {data} has {network.num_classes}; add --new-head to "
                "begin with all but its last layer"
            )
        without = " without the last layer" if new_head else ""
        return StartingWeights(given.of(network, head=not new_head), f"sha256 {given.sha256}{without}")

    def warn(self, workspace: Workspace, data: str, opened: Data, recipe: Recipe, listener: Listener) -> None:
        """Tells where another seed, or groups, make validation videos of those that the checkpoint was trained on."""
        from hwbench.data import open_splits

        before = self.checkpoint
        if before is None or before.trained_on in ("", opened.training.videos.identity):
            return
        seed, trained_on = before.data_seed, before.trained_on
        if trained_on != open_splits(workspace, data, seed=seed, trained_on=trained_on).train.identity:
            return
        told = f"{self.weights.path} was trained on {data} as"
        leak = "it is validated on videos that it was trained on"
        if seed != recipe.seed:
            listener.say(f"{told} seed {seed} splits it: with seed {recipe.seed} {leak}; give --seed {seed}")
        else:
            listener.say(f"{told} an earlier version split it, without groups: {leak}; begin without --weights")


def own_normalisation(network: Network) -> Normalisation | None:
    """How a model by hand says that pixels are normalised; None: it does not, or the network is of hwbench's blocks.

    Raises:
        InvalidValue: Its ``input_mean`` or ``input_std`` is wrong, or it has another number of classes.
    """
    from hwbench.data import Normalisation
    from hwbench.models import by_hand

    given = by_hand.normalisation_for(network) if by_hand.is_by_hand_network(network.blocks) else None
    return None if given is None else Normalisation(*given)


def check_own_weights(path: Path | None, name: str) -> None:
    """Refuses a file that is not there as weights of a model by hand; None is none.

    Raises:
        InvalidFile: It is not there.
    """
    from hwbench.models.files import read_tensors

    if path is not None and not lookup.is_file(path):
        read_tensors(path, _checkpoint_of(name))


def _checkpoint_of(name: str) -> str:
    """What is expected of the weights of a model by hand, in words."""
    from hwbench.models.hand_weights import AS_WRITTEN

    return f"a checkpoint or the state dict of {name}, {AS_WRITTEN}"
