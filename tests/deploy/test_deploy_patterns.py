"""Groups of layers that become one block: what must match, what must not, what must stay as it was."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from hwbench.blocks import EfficientBlock
from hwbench.deploy import convert_to_deployable_form, transmute_model
from hwbench.errors import UnsupportedModule
from hwbench.models import create_x3d

X = torch.randn(2, 4, 3, 9, 8, generator=torch.Generator().manual_seed(3))


def settled(module: nn.Module) -> nn.Module:
    """No norm is an identity."""
    torch.manual_seed(1)
    for part in module.modules():
        if isinstance(part, nn.BatchNorm3d) and part.running_var is not None:
            nn.init.uniform_(part.running_var, 0.5, 2)
            nn.init.normal_(part.running_mean, std=0.3)
            if part.affine:
                nn.init.uniform_(part.weight, 0.5, 1.5)
    return module


def conv(i: int = 4, o: int = 4, k: int = 1, **options: object) -> nn.Conv3d:
    return nn.Conv3d(i, o, k, padding=k // 2, **options)


class Ordinary(nn.Module):
    """Layers called one after the other in a forward of its own."""

    def __init__(self, act: Callable[[], nn.Module] = nn.ReLU, norm: Callable[[int], nn.Module] = nn.BatchNorm3d):
        super().__init__()
        self.first = conv(k=3, groups=4, bias=False)
        self.norm = norm(4)
        self.act = act()
        self.last = conv(4, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.act(self.norm(self.first(x))))


class Function(Ordinary):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(F.relu(self.norm(self.first(x)), inplace=True))


class Twice(Ordinary):
    """The same three layers, called two times in the same order."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            x = self.act(self.norm(self.first(x)))
        return self.last(x)


class SharedAct(Ordinary):
    """One activation in two places."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(self.last(self.act(self.norm(self.first(x)))))


class Tapped(Ordinary):
    """Someone else uses the output of the convolution."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        return self.last(self.act(self.norm(y)) + y)


class Returned(Ordinary):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.first(x)
        return y, self.act(self.norm(y))


class NormTwice(Ordinary):
    """The normalisation is used on something else, too."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.act(self.norm(self.first(x))) + self.norm(x))


class OnlyInTraining(Ordinary):
    """Another way in training."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        if self.training:
            y = y + 1
        return self.last(self.act(self.norm(y)))


class NormSkippedInTraining(Ordinary):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x) if self.training else self.norm(self.first(x))
        return self.last(self.act(y))


class UsesWeights(Ordinary):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.act(self.norm(self.first(x)))) * self.first.weight.sum()


class AsksForTensor(Ordinary):
    """What a tracer that is no tensor would take for the other way."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        if isinstance(x, torch.Tensor):
            y = y * 2
        return self.last(self.act(self.norm(y)))


class WithoutSkip(Ordinary):
    """Goes another way where an argument is left out."""

    def forward(self, x: torch.Tensor, skip: torch.Tensor | None = None) -> torch.Tensor:
        y = self.first(x)
        if skip is None:
            y = y * 2
        return self.last(self.act(self.norm(y)))


class UnusedOptions(Ordinary):
    def forward(
        self, x: torch.Tensor, skip: torch.Tensor | None = None, *rest: int, sizes: tuple[int, int] = (1, 2)
    ) -> torch.Tensor:
        return self.last(self.act(self.norm(self.first(x))))


class OnValues(Ordinary):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        if y.sum() > 0:
            y = y * 2
        return self.last(self.act(self.norm(y)))


class MyNorm(nn.BatchNorm3d):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) + 1


GROUPED = {
    "sequential": (lambda: nn.Sequential(conv(), nn.BatchNorm3d(4), nn.ReLU(inplace=True)), {"0"}, {"1", "2"}),
    "relu": (Ordinary, {"first", "last"}, {"norm", "act"}),
    "swish": (lambda: Ordinary(nn.SiLU), {"first", "last"}, {"norm", "act"}),
    "hswish": (lambda: Ordinary(nn.Hardswish), {"first", "last"}, {"norm", "act"}),
    "another activation": (lambda: Ordinary(nn.GELU), {"first", "last"}, {"norm"}),
    "no affine": (lambda: Ordinary(norm=lambda c: nn.BatchNorm3d(c, affine=False, eps=1e-2)), {"first", "last"},
                  {"norm", "act"}),
    "no norm": (lambda: nn.Sequential(conv(), nn.ReLU(), conv()), {"0", "2"}, {"1"}),
    "function": (Function, {"first", "last"}, {"norm"}),
    "twice": (Twice, {"first", "last"}, {"norm", "act"}),
    "shared activation": (SharedAct, {"first", "last"}, {"norm"}),
    "tapped": (Tapped, {"first", "last"}, set()),
    "returned": (Returned, {"first", "last"}, set()),
    "norm twice": (NormTwice, {"first", "last"}, set()),
    "only in training": (OnlyInTraining, {"first", "last"}, set()),
    "norm skipped in training": (NormSkippedInTraining, {"first", "last"}, set()),
    "uses weights": (UsesWeights, {"last"}, set()),
    "asks for a tensor": (AsksForTensor, {"first", "last"}, set()),
    "without an argument": (WithoutSkip, {"first", "last"}, set()),
    "options that change nothing": (UnusedOptions, {"first", "last"}, {"norm", "act"}),
    "on values": (OnValues, {"first", "last"}, set()),
    "no statistics": (lambda: Ordinary(norm=lambda c: nn.BatchNorm3d(c, track_running_stats=False)),
                      {"first", "last"}, set()),
    "norm of a subclass": (lambda: Ordinary(norm=MyNorm), {"first", "last"}, set()),
    "group norm": (lambda: Ordinary(norm=lambda c: nn.GroupNorm(2, c)), {"first", "last"}, set()),
}  # fmt: skip


@pytest.mark.parametrize("name", GROUPED)
def test_a_convolution_with_what_follows_it(name: str) -> None:
    make, replaced, absorbed = GROUPED[name]
    model = settled(make())
    before = copy.deepcopy(model)
    modes = {part: part.training for part in model.modules()}
    parameters = [*model.parameters()]
    report = transmute_model(model)
    # "returned" is not run at the end of a chain: its last layer is not called
    assert {*report.replaced} == replaced - (
        {"last"} if name == "returned" and "last" not in report.replaced else set()
    )
    assert {*report.absorbed} == absorbed
    assert {part: part.training for part in modes} == modes
    assert {id(p) for p in model.parameters()} == {id(p) for p in parameters}
    norms = {n for n, part in before.named_modules() if isinstance(part, nn.BatchNorm3d)}
    assert norms - absorbed <= {*report.kept}
    for training in (True, False):
        with torch.no_grad():
            same(model.train(training)(X), before.train(training)(X))
    with torch.no_grad():
        same(convert_to_deployable_form(model, X)(X), before(X))


def same(got: object, expected: object) -> None:
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)


def test_reasons_are_told() -> None:
    reasons = {
        "tapped": "all and only the output of one convolution",
        "no statistics": "no running statistics",
        "norm of a subclass": "a subclass of BatchNorm3d (MyNorm)",
        "on values": "cannot be traced",
    }
    for name, said in reasons.items():
        report = transmute_model(GROUPED[name][0](), dry_run=True)
        assert said in report.kept["norm"]
        assert said in str(report)
    assert "uses its weights itself" in transmute_model(UsesWeights()).kept["first"]


class Choice(nn.Module):
    """Cannot be traced, its parts can."""

    def __init__(self) -> None:
        super().__init__()
        self.part = Ordinary()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.part(x) if x.sum() > 0 else self.part(-x)


class Cheat(Choice):
    """Reaches into its part."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.part(x) + self.part.first(x).mean() if x.sum() != 0 else x


def test_parts_are_grouped_where_an_example_proves_the_whole() -> None:
    assert "give an example_input" in transmute_model(Choice()).kept["part.norm"]
    model = settled(Choice())
    before = copy.deepcopy(model).eval()
    assert {*transmute_model(model, example_input=X).absorbed} == {"part.norm", "part.act"}
    with torch.no_grad():
        same(convert_to_deployable_form(model, X)(X), before(X))
    cheat = settled(Cheat())
    layers = [*cheat.named_modules()]
    with pytest.raises(UnsupportedModule, match="does not compute the same on example_input"):
        transmute_model(cheat, example_input=X)
    assert [*cheat.named_modules()] == layers


class Reads(Ordinary):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.first(x)) * self.first.out_channels


def test_a_forward_that_needs_the_layer_leaves_the_model_as_it_was() -> None:
    model = Reads()
    layers = [*model.named_modules()]
    with pytest.raises(UnsupportedModule, match="uses the insides of a layer"):
        transmute_model(model)
    assert [*model.named_modules()] == layers


class Listed(Ordinary):
    """Calls a layer by a reference of its own."""

    def __init__(self, layer: str) -> None:
        super().__init__()
        self.layers = [self.get_submodule(layer)]
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for name in ("first", "norm", "act", "last"):
            x = (self.layers[0] if name == self.layer else getattr(self, name))(x)
        return x


@pytest.mark.parametrize("layer", ["first", "norm", "act"])
def test_a_layer_called_past_its_name_leaves_the_model_as_it_was(layer: str) -> None:
    model = Listed(layer)
    layers = [*model.named_modules()]
    with pytest.raises(UnsupportedModule, match="by another reference than its name"):
        transmute_model(model)
    assert [*model.named_modules()] == layers


@pytest.mark.parametrize("layer", ["first", "norm", "act"])
@pytest.mark.parametrize("kind", ["forward_hook", "forward_pre_hook", "full_backward_hook", "forward"])
def test_hooks_and_replaced_forwards_keep_a_layer(layer: str, kind: str) -> None:
    model = Ordinary()
    target = model.get_submodule(layer)
    if kind == "forward":
        target.forward = lambda x: x
    else:
        getattr(target, f"register_{kind}")(lambda *_: None)
    report = transmute_model(model)
    assert model.get_submodule(layer) is target
    assert layer not in {*report.replaced, *report.absorbed}


def test_everything_about_a_group_stays() -> None:
    model = nn.Sequential(conv(), nn.BatchNorm3d(4), nn.ReLU(), conv(), nn.BatchNorm3d(4)).half()
    model[0].requires_grad_(False)
    model[1].eval()
    model[4].weight = model[1].weight
    norm, mode = model[1], {id(p): (p.dtype, p.requires_grad) for p in model.parameters()}
    transmute_model(model)
    block = model[0]
    assert isinstance(block, EfficientBlock)
    assert block.kernel.bn is norm
    assert (block.training, block.kernel.bn.training, model[1].training) == (True, False, False)
    assert {id(p): (p.dtype, p.requires_grad) for p in model.parameters()} == mode
    assert model[3].kernel.bn.weight is block.kernel.bn.weight


class Gate(nn.Module):
    """Squeeze-excite as others write it."""

    def __init__(self, act: nn.Module | None = None, mean: str = "method", sigmoid: str = "module") -> None:
        super().__init__()
        self.down, self.act, self.up = conv(4, 2), act or nn.ReLU(), conv(2, 4)
        self.pool, self.gate = nn.AdaptiveAvgPool3d(1), nn.Sigmoid()
        self.mean, self.sigmoid = mean, sigmoid

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        squeezed = {
            "method": lambda: x.mean((2, 3, 4), keepdim=True),
            "negative": lambda: torch.mean(x, dim=[-1, -2, -3], keepdim=True),
            "module": lambda: self.pool(x),
            "function": lambda: F.adaptive_avg_pool3d(x, 1),
            "space": lambda: x.mean((3, 4), keepdim=True),
        }[self.mean]()
        y = self.up(self.act(self.down(squeezed)))
        y = {
            "module": lambda: self.gate(y),
            "function": lambda: torch.sigmoid(y),
            "hard": lambda: F.hardsigmoid(y),
        }[self.sigmoid]()
        return x * y if self.mean != "module" else y * x


@pytest.mark.parametrize("mean", ["method", "negative", "module", "function"])
@pytest.mark.parametrize("sigmoid", ["module", "function"])
def test_squeeze_excite(mean: str, sigmoid: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(Gate(nn.SiLU() if mean == "negative" else None, mean, sigmoid), conv())
    before = copy.deepcopy(model).eval()
    report = transmute_model(model)
    assert report.replaced["0"] == "SqueezeExcitation"
    with torch.no_grad():
        same(model(X), before(X))
        same(convert_to_deployable_form(model, X)(X), before(X))
    root = Gate()
    assert isinstance(transmute_model(root).model, EfficientBlock)


class Unused(Gate):
    """Holds a parameter that the block would not."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))


class Leaky(Gate):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * 2


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Gate(mean="space"), "not a sigmoid of the mean over time and space"),
        (lambda: Gate(sigmoid="hard"), "not a sigmoid of the mean over time and space"),
        (lambda: Gate(nn.GELU()), "not of two pointwise convolutions with relu, swish or hswish"),
        (Unused, "all of its parameters"),
        (Leaky, None),
    ],
)
def test_gates_that_are_others(make: Callable[[], nn.Module], said: str | None) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(make())
    before = copy.deepcopy(model).eval()
    report = transmute_model(model)
    assert {*report.replaced} >= {"0.down", "0.up"}
    assert report.kept.get("0") is None if said is None else said in report.kept["0"]
    with torch.no_grad():
        same(convert_to_deployable_form(model, X)(X), before(X))


class Residual(nn.Module):
    """A basic block, with choices."""

    def __init__(self, project: bool = False, order: str = "branch first", drop: bool = False) -> None:
        super().__init__()
        out = 6 if project else 4
        self.relu = nn.ReLU(inplace=True)
        self.one = nn.Sequential(conv(4, out, 3, bias=False), nn.BatchNorm3d(out), self.relu)
        self.two = nn.Sequential(conv(out, out, 3, bias=False), nn.BatchNorm3d(out))
        self.project = nn.Sequential(conv(4, out), nn.BatchNorm3d(out)) if project else None
        self.drop = nn.Dropout(0.1) if drop else nn.Identity()
        self.order = order

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        residual = x
        y = self.drop(self.two(self.one(x)))
        if self.project is not None:
            residual = self.project(x)
        if self.order == "in place":
            y += residual
        elif self.order == "branch last":
            y = torch.add(residual, y)
        elif self.order == "halved":
            y = torch.add(residual, y, alpha=0.5)
        else:
            y = y + residual
        return self.relu(y)


class Evaluated(Residual):
    """Without its last activation in training."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.two(self.one(x)) + x
        return y if self.training else self.relu(y)


class PreActivated(Residual):
    """The first activation changes x itself, before the sum takes it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.two(self.one(self.relu(x))) + x


class Activated(Residual):
    """Reads its input again behind an activation that leaves it as it is."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.two(self.one(x)) + F.relu(x)


class WritesInput(Residual):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x += self.two(self.one(x))
        return x


@pytest.mark.parametrize("project", [False, True])
@pytest.mark.parametrize("order", ["branch first", "branch last", "in place"])
def test_a_residual_module_is_one_block(project: bool, order: str) -> None:
    model = settled(nn.Sequential(Residual(project, order)))
    before = copy.deepcopy(model)
    parameters = {id(p) for p in model.parameters()}
    report = transmute_model(model)
    assert report.replaced["0"] == "ResidualBlock"
    assert {id(p) for p in model.parameters()} == parameters
    with torch.no_grad():
        for training in (True, False):
            same(model.train(training)(X.clone()), before.train(training)(X.clone()))
        deployed = convert_to_deployable_form(model, X)
        assert deployed.conversion.converted == ("0",)
        same(deployed(X), before(X.clone()))


@pytest.mark.parametrize("training", [False, True])
def test_an_activation_as_a_function_leaves_its_input(training: bool) -> None:
    model = settled(Activated()).train(training)
    before = copy.deepcopy(model)
    block = transmute_model(model).model
    assert isinstance(block, EfficientBlock)
    x = (X * 1).requires_grad_()
    clip = x * 1
    got = block(clip) + clip
    same(got, before(x) + x)
    got.sum().backward()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Residual(order="halved"), None),
        (lambda: Residual(drop=True), "drop (Dropout) is no block"),
        (PreActivated, "does not compute the same"),
        (Evaluated, "another one in training"),
        (WritesInput, "changes its input in place"),
    ],
)
def test_sums_that_are_others(make: Callable[[], nn.Module], said: str | None) -> None:
    model = settled(nn.Sequential(make()))
    before = copy.deepcopy(model).eval()
    report = transmute_model(model)
    assert "0" not in report.replaced
    assert {"0.one.0", "0.two.0"} <= {*report.replaced}
    assert report.kept.get("0") is None if said is None else said in report.kept["0"]
    with torch.no_grad():
        same(convert_to_deployable_form(model, X.clone())(X.clone()), before(X.clone()))


@pytest.mark.long
def test_a_vanilla_network_becomes_residual_blocks() -> None:
    torch.manual_seed(0)
    model = settled(create_x3d(num_classes=3, depth_factor=0.2, width_factor=1.0, head_width=64)).eval()
    x = torch.randn(1, 3, 3, 33, 40)
    with torch.no_grad():
        expected = model(x)
        dry = transmute_model(model, dry_run=True)
        same(model(x), expected)
        assert dry.model is model
        report = transmute_model(model, example_input=x)
        assert (report.replaced, report.absorbed, report.kept) == (dry.replaced, dry.absorbed, dry.kept)
        assert not report.kept
        blocks = [block for block in report.replaced.values() if block == "ResidualBlock"]
        assert len(blocks) == 4
        deployed = convert_to_deployable_form(model, x)
        same(model(x), expected)
        same(deployed(x), expected)
    assert len(deployed.conversion.converted) == 4 + 5
    assert not [m for m in deployed.modules() if isinstance(m, nn.Conv3d | nn.BatchNorm3d)]


def test_a_network_of_subclasses_keeps_them() -> None:
    """torchvision's convolutions are subclasses; the graph route takes such a network."""
    from torchvision.models.video import r3d_18

    torch.manual_seed(0)
    model = settled(r3d_18(num_classes=3)).eval()
    x = torch.randn(1, 3, 4, 24, 24)
    with torch.no_grad():
        expected = model(x)
        report = transmute_model(model)
        assert report.replaced["stem.0"] == "ConvBnAct"
        assert {*report.absorbed} == {"stem.1", "stem.2"}
        assert "a subclass of Conv3d (Conv3DSimple)" in report.kept["layer1.0.conv1.0"]
        same(model(x), expected)
        same(convert_to_deployable_form(model, x)(x), expected)
