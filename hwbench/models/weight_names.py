"""What is known of the names in a file of weights: whose they are, and what each is called in a network of ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import torch

from hwbench.errors import InvalidValue
from hwbench.models.efficient_x3d import is_x3d
from hwbench.models.mvit import MvitNetwork
from hwbench.models.mvit_weights import EXAMPLE, MvitForm, mvit_form, to_pyslowfast
from hwbench.models.r2plus1d import R2plus1dNetwork
from hwbench.models.resnet import ResnetNetwork
from hwbench.models.resnet_weights import EXAMPLES, ResnetForm, pyslowfast_names, resnet_form
from hwbench.models.slowfast import is_slowfast
from hwbench.models.squeezetime import SqueezeTimeNetwork
from hwbench.models.squeezetime_weights import (
    SQUEEZETIME_EXAMPLES,
    SqueezeTimeForm,
    squeezetime_form,
    squeezetime_name,
    stem_in,
)
from hwbench.models.weights import (
    Weights,
    WeightsForm,
    first_of,
    form_of,
    likely_names,
    names_in,
    translated,
    without_shortcut_norm,
)
from hwbench.specs import Network

Form = WeightsForm | ResnetForm | SqueezeTimeForm | MvitForm
Names = Mapping[str, str | None]


class WeightNames(Protocol):
    """The names of one form."""

    @property
    def networks(self) -> str:
        """What networks have weights of this form, as the end of "weights of"."""
        ...

    @property
    def last_layer(self) -> str:
        """How the name of the last layer ends in a file, the width of which is the number of classes."""
        ...

    def fits(self, network: Network) -> bool:
        """Whether the form is one of such a network's weights."""
        ...

    def in_file(self, wanted: Weights) -> dict[str, str]:
        """All names of a network of ours -> their names in a file, without what the form does not have.

        A layer that no network of the form has keeps its name, and is missed under it.
        """
        ...

    def plain(self, names: Weights) -> Names:
        """Names in a file -> what they are called here, as far as their layers go."""
        ...

    def ours(self, given: Weights, names: Mapping[str, str]) -> dict[str, torch.Tensor]:
        """Weights of a file under the names of the network, which ``in_file`` gave."""
        ...


class X3dNames:
    """Of X3D, whose pivot is ``efficient-x3d``."""

    networks = "an X3D"

    def __init__(self, form: WeightsForm) -> None:
        self.form = form

    @property
    def last_layer(self) -> str:
        ends = {WeightsForm.EFFICIENT: "projection.model", WeightsForm.VANILLA: ".proj"}
        return ends.get(self.form, "head.projection")

    def fits(self, network: Network) -> bool:
        return is_x3d(network.blocks)

    def in_file(self, wanted: Weights) -> dict[str, str]:
        shapes = {name: tuple(value.shape) for name, value in wanted.items()}
        gone = without_shortcut_norm(shapes) if self.form is WeightsForm.VANILLA else set()
        kept = [name for name in wanted if name not in gone]
        return {name: own or name for name, own in names_in(kept, WeightsForm.EFFICIENT, self.form).items()}

    def plain(self, names: Weights) -> Names:
        return names_in(names, self.form, WeightsForm.EFFICIENT)

    def ours(self, given: Weights, names: Mapping[str, str]) -> dict[str, torch.Tensor]:
        return translated(given, WeightsForm.EFFICIENT)


class ResnetNames:
    """Of the ResNets, whose own names are PyTorchVideo's."""

    networks = "a ResNet (C2D, I3D, Slow, CSN, R(2+1)D, SlowFast)"

    def __init__(self, form: ResnetForm) -> None:
        self.form = form

    @property
    def last_layer(self) -> str:
        return ".proj" if self.form is ResnetForm.PYTORCHVIDEO else "head.projection"

    def fits(self, network: Network) -> bool:
        blocks = network.blocks
        return ResnetNetwork.matches(blocks) or R2plus1dNetwork.matches(blocks) or is_slowfast(blocks)

    def in_file(self, wanted: Weights) -> dict[str, str]:
        if self.form is ResnetForm.PYTORCHVIDEO:
            return {name: name for name in wanted}
        return {name: theirs or name for name, theirs in pyslowfast_names(wanted).items()}

    def plain(self, names: Weights) -> Names:
        if self.form is ResnetForm.PYTORCHVIDEO:
            return {name: name for name in names}
        # What is looked for is the kind of a layer, which the name of a normalisation says.
        return {name: name.replace("_bn.", ".bn.").replace(".c.bn.", ".norm_c.") for name in names}

    def ours(self, given: Weights, names: Mapping[str, str]) -> dict[str, torch.Tensor]:
        own = {in_file: name for name, in_file in names.items()}
        return {own[name]: value.clone() for name, value in given.items()}


class SqueezeTimeNames:
    """Of SqueezeTime."""

    networks = "a SqueezeTime"

    def __init__(self, form: SqueezeTimeForm) -> None:
        self.form = form

    @property
    def last_layer(self) -> str:
        return "head.proj" if self.form is SqueezeTimeForm.OWN else "cls_head.fc_cls"

    def fits(self, network: Network) -> bool:
        return SqueezeTimeNetwork.matches(network.blocks)

    def in_file(self, wanted: Weights) -> dict[str, str]:
        if self.form is SqueezeTimeForm.OWN:
            return {name: name for name in wanted}
        return {name: squeezetime_name(name, SqueezeTimeForm.OWN) or name for name in wanted}

    def plain(self, names: Weights) -> Names:
        if self.form is SqueezeTimeForm.OWN:
            return {name: name for name in names}
        return {name: squeezetime_name(name, self.form) for name in names}

    def ours(self, given: Weights, names: Mapping[str, str]) -> dict[str, torch.Tensor]:
        own = {in_file: name for name, in_file in names.items()}
        if self.form is SqueezeTimeForm.OWN:
            return {own[name]: value.clone() for name, value in given.items()}
        return {own[name]: stem_in(self.form, name, value) for name, value in given.items()}


class MvitNames:
    """Of MViT, whose own names are PyTorchVideo's."""

    networks = "an MViT"

    def __init__(self, form: MvitForm) -> None:
        self.form = form

    @property
    def last_layer(self) -> str:
        return "head.proj" if self.form is MvitForm.PYTORCHVIDEO else "head.projection"

    def fits(self, network: Network) -> bool:
        return MvitNetwork.matches(network.blocks)

    def in_file(self, wanted: Weights) -> dict[str, str]:
        ours = self.form is MvitForm.PYTORCHVIDEO
        return {name: name if ours else to_pyslowfast(name) or name for name in wanted}

    def plain(self, names: Weights) -> Names:
        return {name: name for name in names}

    def ours(self, given: Weights, names: Mapping[str, str]) -> dict[str, torch.Tensor]:
        own = {in_file: name for name, in_file in names.items()}
        return {own[name]: value.clone() for name, value in given.items()}


def names_of(form: Form) -> WeightNames:
    """The names of a form."""
    if isinstance(form, SqueezeTimeForm):
        return SqueezeTimeNames(form)
    if isinstance(form, MvitForm):
        return MvitNames(form)
    return X3dNames(form) if isinstance(form, WeightsForm) else ResnetNames(form)


def recognised(weights: Weights) -> Form:
    """The form of all that most of the names belong to.

    All names of a ResNet of PySlowFast are names of its X3D, too, which has more; so a ResNet comes first. The
    blocks of an MViT have no name with either.

    Raises:
        InvalidValue: No name belongs to any.
    """
    squeezetime, squeezed = squeezetime_form(weights)
    (mvit, tokens), (resnet, count) = mvit_form(weights), resnet_form(weights)
    if squeezed > max(count, tokens):
        return squeezetime
    if tokens > count:
        return mvit
    try:
        x3d = form_of(weights)
    except InvalidValue:
        if not count:
            raise InvalidValue(
                f"no weights of an X3D, a ResNet, an MViT or a SqueezeTime: expected names {likely_names()}; of a "
                f"ResNet such as {' or '.join(EXAMPLES)}; of an MViT such as {EXAMPLE}; of a SqueezeTime such as "
                f"{' or '.join(SQUEEZETIME_EXAMPLES)}; got {first_of([*weights])}"
            ) from None
        return resnet
    known = sum(own is not None for own in names_in(weights, x3d, _other(x3d)).values())
    return resnet if count >= known else x3d


def _other(form: WeightsForm) -> WeightsForm:
    return next(other for other in WeightsForm if other is not form)
