"""Models that users wrote: what is told of their blocks, what is refused, and that no file leads to their code."""

import importlib
import itertools
import json
import subprocess
import sys

import pytest
import torch
from torch import nn

import hwbench.testing.engines  # noqa: F401  # registers the faulty engine here
from hwbench.api.export_sources import SourceArguments, open_source
from hwbench.blocks import build, frames_to_batch
from hwbench.blocks.deployment import BlockChain, deploy_form
from hwbench.errors import InvalidFile, InvalidValue, UnknownName, UnsupportedModule
from hwbench.interpreter import python_environment
from hwbench.latency.arithmetic import Work
from hwbench.measure.build_worker import _load_models
from hwbench.measure.builder import build_all
from hwbench.models import by_hand, deployed, eager_workload, keeps_blocks, network
from hwbench.models.answers import answer
from hwbench.models.hand_weights import HandWeights
from hwbench.runtimes.eager import EagerTorch
from hwbench.spaces import load_space, open_space, open_spaces, read_space, resolve
from hwbench.spaces.feasible import FeasibleSet
from hwbench.spaces.sums import SpaceSums
from hwbench.specs import Artifact, BlockSpec, ModelName, Precision, TensorSpec, Workload
from hwbench.specs.model_name import named_models
from hwbench.training.recipe import Recipe
from hwbench.training.run import initial
from hwbench.workspace import Workspace

HEADER = """
import functools

import torch
from torch import nn

def stem():
    return nn.Sequential(nn.Conv3d(3, 4, (1, 3, 3), (1, 2, 2), (0, 1, 1), bias=False), nn.BatchNorm3d(4), nn.ReLU())

class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv3d(4, 4, (3, 3, 3), (2, 1, 1), 1, groups=4)
    def forward(self, x):
        return torch.relu(self.conv(x))

class Logits(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.last = nn.Linear(4, classes)
    def forward(self, x):
        return self.last(x.mean((2, 3, 4)))

def make(num_classes=5):
    return nn.Sequential(stem(), Deep(), Logits(num_classes))
make.input_shape = (1, 3, 4, 10, 10)

def of_classes(num_classes):
    return make(num_classes)
of_classes.input_shape = make.input_shape

class FoldsItself(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.net = make(classes)
    def to_deploy(self, inplace):
        return self
    def forward(self, x):
        return self.net(x)

class WithExtraState(FoldsItself):
    def __init__(self, classes, state):
        super().__init__(classes)
        self.state = state
    def get_extra_state(self):
        return self.state
    def set_extra_state(self, state):
        self.state = state

def folds_itself(num_classes=5):
    return FoldsItself(num_classes)

def with_extra_state(num_classes=5):
    return WithExtraState(num_classes, {"version": 3})

def with_tensor_state(num_classes=5):
    return WithExtraState(num_classes, torch.tensor(3))
folds_itself.input_shape = with_extra_state.input_shape = with_tensor_state.input_shape = make.input_shape

def flat():
    return nn.Sequential(stem(), Deep(), nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(4, 6))
flat.input_shape = "1x3x4x10x10"

class Alike(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.pool, self.flat = stem(), nn.AdaptiveAvgPool3d(1), nn.Flatten()
        self.named, self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
        self.blocks = [
            ("stem", self.stem), ("pool", self.pool), ("half", self.flat),
            ("3_fc", self.named), ("fc", self.first), ("fc", self.second),
        ]
    def forward(self, x):
        return self.second(self.first(self.named(self.flat(self.pool(self.stem(x))))))

def alike():
    return Alike()
alike.input_shape = "1x3x4x10x10"

class Partly(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks, self.head = nn.ModuleList([Deep(), Deep()]), Logits(5)
        self.first = stem()
    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = x + block(x).repeat(1, 1, 2, 1, 1) if x.shape[2] % 2 == 0 else x
        return self.head(x)

def partly():
    return Partly()
partly.input_shape = (1, 3, 4, 10, 10)

def unnamed():
    return Partly()
unnamed.input_shape, unnamed.blocks = (1, 3, 4, 10, 10), None

def sizeless():
    return Partly()

def pictures():
    return stem()
pictures.input_shape = (1, 3, 4, 10, 10)

def fails():
    raise RuntimeError("no such luck")

def leaves():
    raise SystemExit(0)

def shared():
    act = nn.ReLU()
    return nn.Sequential(nn.Conv3d(3, 4, 1), act, nn.Conv3d(4, 4, 1), act, Logits(5))
shared.input_shape = (1, 3, 4, 10, 10)

class NotFinite(nn.Sequential):
    def forward(self, x):
        return super().forward(x) * float("nan")

def not_finite():
    return NotFinite(stem(), Logits(5))
not_finite.input_shape = (1, 3, 4, 10, 10)

def not_finite_whole():
    return NotFinite(stem(), Logits(5))
not_finite_whole.input_shape, not_finite_whole.blocks = (1, 3, 4, 10, 10), None

def wide(num_classes):
    return nn.Sequential(stem(), Logits(num_classes))
wide.input_shape = (1, 3, 4, 10, 12)

class Chain(nn.Module):
    input_shape = (1, 3, 4, 10, 10)
    def __init__(self, num_classes=5):
        super().__init__()
        self.stem, self.deep, self.head = stem(), Deep(), Logits(num_classes)
    def forward(self, x):
        return self.head(self.deep(self.stem(x)))

class Named(Chain):
    @property
    def blocks(self):
        return {"stem": self.stem, "deep": self.deep, "head": self.head}

class Sized(Named):
    input_shape = property(lambda self: (1, 3, 4, 10, 10))

class Cached(Chain):
    @functools.cached_property
    def blocks(self):
        return [self.stem, self.deep, self.head]

class Method(Chain):
    def blocks(self):
        return [self.stem, self.deep, self.head]

def misspelled():
    return Misspelled()

class Misspelled(Chain):
    @property
    def blocks(self):
        return {"stem": self.stem, "deep": self.dep, "head": self.head}

class Number(Chain):
    blocks = 5

class Headless(Chain):
    @property
    def blocks(self):
        return {"stem": self.stem}

class Itself(Chain):
    @property
    def blocks(self):
        return {"all": self}

class OnePart(nn.Module):
    input_shape = (1, 3, 4, 10, 10)
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Chain()])
    def forward(self, x):
        return self.blocks[0](x)

class OtherHead(Chain):
    @property
    def blocks(self):
        return {"first": nn.Sequential(stem(), Logits(5))}

class BadTail(Chain):
    @property
    def blocks(self):
        return [self.stem, nn.Sequential(nn.AdaptiveAvgPool3d(1), nn.Flatten()), self.head]

class Two(Chain):
    def forward(self, x, y):
        return super().forward(x)

class Halved(Chain):
    def forward(self, x):
        return super().forward(x.half())

class Narrow(Chain):
    def forward(self, x, *, scale=1):
        return self.head(nn.functional.conv3d(self.stem(x), torch.zeros(4, 4, 9, 9, 9)))

class Ends(Chain):
    def forward(self, x):
        raise SystemExit(0)

class Misses(Chain):
    def forward(self, x):
        return super().forward(x * {}["scale"])

class PerFrame(Chain):
    def forward(self, x):
        return self.head.last(self.stem(x).mean((3, 4)).transpose(1, 2).flatten(0, 1))

class Attends(Chain):
    def __init__(self, num_classes=5):
        super().__init__(num_classes)
        self.fused = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
    def forward(self, x):
        x = self.stem(x).flatten(2).transpose(1, 2)
        x = nn.functional.scaled_dot_product_attention(x, x, x)
        return self.head.last(self.fused(x).mean(1))

class Lazy(nn.Module):
    input_shape = (1, 3, 4, 10, 10)
    def __init__(self, num_classes=5):
        super().__init__()
        self.first, self.norm = nn.LazyConv3d(4, 3, padding=1), nn.LazyBatchNorm3d()
        self.frozen, self.head = nn.BatchNorm3d(4).eval(), Logits(num_classes)
    def forward(self, x):
        return self.head(self.frozen(self.norm(self.first(x))))

class Tied(Lazy):
    def __init__(self):
        super().__init__()
        self.spare, self.seen = nn.LazyConv3d(4, 3, padding=1), []
        self.spare.weight, self.spare.bias = self.first.weight, self.first.bias
    def forward(self, x):
        self.seen.append(x.shape)
        return super().forward(x)

class Unreached(Lazy):
    def __init__(self):
        super().__init__()
        self.spare = nn.LazyLinear(3)

class Normalise(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(0.225))
    def forward(self, x):
        return x.sub_(0.45).div_(self.scale)

class InPlace(nn.Sequential):
    input_shape = (1, 3, 4, 10, 10)
    def __init__(self, num_classes=5):
        super().__init__(Normalise(), stem(), Logits(num_classes))

class FramesFirst(Chain):
    def forward(self, pixel_values):
        return super().forward(pixel_values.transpose(1, 2))

class Keyed(Chain):
    def forward(self, x):
        return {"loss": None, "logits": super().forward(x)}

class WithFeatures(Chain):
    def forward(self, x):
        return super().forward(x), x

class Output(dict):
    @property
    def logits(self):
        return self["logits"]

class Transformer(Chain):
    def forward(self, x):
        return Output(logits=super().forward(x))

class Frozen(Chain):
    def __init__(self, num_classes=5):
        super().__init__(num_classes)
        self.requires_grad_(False)
"""
_numbers = itertools.count()


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A module of the current folder that no test before has imported, by its name."""
    name = f"byhand{next(_numbers)}"
    (tmp_path / f"{name}.py").write_text(HEADER)
    monkeypatch.chdir(tmp_path)
    for names in ("_loaded", "_makers"):
        monkeypatch.setattr(by_hand, names, {})
    yield name
    sys.modules.pop(name, None)


def loaded(package, function, num_classes=None):
    return by_hand.load(ModelName.parse(f"{package}:{function}"), num_classes)


@pytest.mark.parametrize(
    ("text", "module", "function", "clip"),
    [
        ("a:f", "a", "f", None),
        (" a.b:f_2@1x3x4x8x9 ", "a.b", "f_2", TensorSpec(1, 3, 4, 8, 9)),
        ("zoo:x3d", None, None, None),
        ("torchvision:r3d_18", None, None, None),
        ("study:best", None, None, None),
        ("x3d-tiny:frames=4", None, None, None),
        ("x3d-tiny", None, None, None),
        ("a.b", None, None, None),
        ("../a:f", None, None, None),
        ("a..b:f", None, None, None),
    ],
)
def test_what_a_name_is(text, module, function, clip):
    name = ModelName.match(text)
    assert name == (None if module is None else ModelName(module, function, clip))


def test_blocks_that_change_their_input_in_place_are_a_chain_as_well(package):
    model = loaded(package, "InPlace")
    assert model.names == ("0", "1", "2")
    clip = torch.randn(model.input.shape)
    kept = clip.clone()
    answer("in place", model.make(), clip)
    assert torch.equal(clip, kept)


@pytest.mark.parametrize(
    "layout",
    [
        lambda weights: {"epoch": 3, "model_state_dict": weights, "optimizer_state_dict": {"state": {}, "groups": []}},
        lambda weights: {"ema": weights, "classes": {0: "a"}},
        lambda weights: {"network": {f"module.{name}": value for name, value in weights.items()}, "loss": 0.5},
        lambda weights: {"state_dict": {f"net.{name}": value for name, value in weights.items()}, "epoch": 3},
        lambda weights: {"net": {"loss.weight": torch.ones(3), **{f"body.{k}": v for k, v in weights.items()}}},
        lambda weights: {"state_dict": weights, "state_dict_ema": {name: value * 0 for name, value in weights.items()}},
    ],
    ids=["tutorial", "averaged", "network", "prefix of Lightning", "prefix and loss", "one by its name"],
)
def test_a_state_dict_is_taken_from_where_a_trainer_puts_it(layout, package, tmp_path):
    model = loaded(package, "make")
    weights = {name: value + 1 for name, value in model.make().state_dict().items()}
    torch.save(layout(weights), tmp_path / "weights.pt")
    read = HandWeights.read(tmp_path / "weights.pt", model.network).of(model.network)
    assert read.keys() == weights.keys()
    assert all(torch.equal(value, weights[name]) for name, value in read.items())


def test_the_keys_of_a_file_without_one_state_dict_are_told(package, tmp_path):
    model = loaded(package, "make")
    weights = model.make().state_dict()
    torch.save({"student": weights, "teacher": {**weights}, "epoch": 3}, tmp_path / "weights.pt")
    with pytest.raises(
        InvalidFile, match=r"the file has 'student', 'teacher', 'epoch', a state dict may be one of model"
    ):
        HandWeights.read(tmp_path / "weights.pt", model.network)


def test_blocks_are_told_as_they_are(package):
    model = loaded(package, "make")
    stem, deep, head = model.network.blocks
    assert model.names == ("0", "1", "2")
    assert model.network.num_classes == 5
    x = model.input
    work = [Work.of(part) for part in model.network.workload(Precision.FP32).parts()]
    # out x kernel x in: 4 frames of 5 x 5, then 2 frames
    assert (work[0].dense_macs, work[0].depthwise_macs) == (4 * 25 * 4 * 9 * 3, 0)
    assert (work[1].dense_macs, work[1].depthwise_macs) == (0, 2 * 25 * 4 * 27)
    assert (work[2].dense_macs, work[2].num_weights) == (20, 20)
    for spec in (stem, deep, head):
        assert BlockSpec.parse(spec.key) == spec
        module = build(spec).eval()
        y = module(torch.randn(x.shape))
        x = spec.output(x)
        assert tuple(y.shape) == (x.shape if y.dim() == 5 else (1, 5))
    with pytest.raises(InvalidValue, match="takes 1x4x4x5x5 and no other input"):
        deep.output(TensorSpec(1, 4, 4, 6, 6))


def test_the_products_of_attention_are_counted(package):
    fast = torch.backends.mha.get_fastpath_enabled()
    (block,) = loaded(package, "Attends").network.blocks
    tokens, channels = 4 * 25, 4
    stem, head = tokens * channels * 9 * 3, channels * 5
    layers = tokens * (4 * channels**2 + 2 * channels * 8)  # queries, keys, values and what comes out; then the MLP
    attention = 2 * (2 * tokens**2 * channels)  # of each of the two: queries with keys, and weights with values
    assert block.number("dense_macs") == stem + layers + attention + head
    assert torch.backends.mha.get_fastpath_enabled() == fast


def test_a_block_and_the_network_deploy_through_their_graphs(package):
    model = loaded(package, "make")
    torch.manual_seed(0)
    whole, clip = network(model.network).eval(), torch.randn(model.input.shape)
    assert torch.allclose(deploy_form(whole, model.input)(frames_to_batch(clip)), whole(clip), atol=1e-5)
    deep, x = model.network.blocks[1], TensorSpec(1, 4, 4, 5, 5)
    chain, clip = BlockChain((deep,)).eval(), torch.randn(x.shape)
    assert torch.allclose(deploy_form(chain, x)(frames_to_batch(clip)), frames_to_batch(chain(clip)), atol=1e-5)


def test_a_to_deploy_of_another_meaning_is_not_called(package, tmp_path):
    resolved = resolve(Workspace.create(tmp_path), f"{package}:folds_itself", 3)
    module, clip = network(resolved).eval(), torch.randn(resolved.input.shape)
    assert module.to_deploy(True) is module
    assert not keeps_blocks(module)
    logits = deployed(module, resolved.input)(frames_to_batch(clip))
    assert torch.allclose(logits, module(clip), atol=1e-5)
    (part,) = (part for part in by_hand.load(ModelName.parse(f"{package}:folds_itself"), 3).parts())
    assert torch.allclose(deploy_form(part.eval(), resolved.input)(frames_to_batch(clip)), part(clip), atol=1e-5)


def test_an_extra_state_that_is_no_tensor_is_measured_and_not_trained(package, tmp_path):
    name, place = f"{package}:with_extra_state", Workspace.create(tmp_path)
    assert open_space(place, name, 3).size() == 1
    with pytest.raises(UnsupportedModule, match=r"_extra_state of its state dict is a dict, .* tensor") as caught:
        initial(resolve(place, name, 3), Recipe())
    assert "\n" not in str(caught.value)
    module = by_hand.made(ModelName.parse(name), 3)
    state = {key: value for key, value in module.state_dict().items() if torch.is_tensor(value)}
    torch.save({**state, "2.last.bias": torch.zeros(4)}, tmp_path / "other.pt")
    with pytest.raises(InvalidFile, match="not the state dict of this model"):
        open_source(place, name, SourceArguments(weights=str(tmp_path / "other.pt"), classes=3))
    assert initial(resolve(place, f"{package}:with_tensor_state", 3), Recipe()).get_extra_state() == 3


def test_what_ends_in_no_clip_is_one_block_with_the_last(package):
    model = loaded(package, "flat")
    assert [block.kind for block in model.network.blocks] == ["hand-stem", "hand", "hand", "hand-head"]
    assert model.names == ("0", "1", "2", "3")
    assert build(model.network.blocks[3]).eval()(torch.zeros(1, 4, 1, 1, 1)).shape == (1, 6)


def test_blocks_behind_the_last_clip_are_all_there_whatever_they_are_called(package):
    model = loaded(package, "alike")
    module, clip = network(model.network).eval(), torch.randn(1, 3, 4, 10, 10)
    whole = model.network.blocks[-1]
    assert sum(parameter.numel() for parameter in build(whole).parameters()) == 3 * (4 * 4 + 4)
    assert whole.number("weights") == 3 * 4 * 4  # without those that are added
    assert module(clip).shape == (1, 4)


def test_a_function_that_takes_the_number_of_classes_is_told_it(package):
    five, seven = loaded(package, "make"), loaded(package, "make", 7)
    assert (five.network.num_classes, seven.network.num_classes) == (5, 7)
    assert five.network.blocks[:2] == seven.network.blocks[:2]
    assert network(five.network.with_classes(9)).eval()(torch.zeros(five.input.shape)).shape == (1, 9)
    assert loaded(package, "flat", 7).network.num_classes == 6
    with pytest.raises(InvalidValue, match="6 classes, 9 are needed; let the function take num_classes"):
        network(loaded(package, "flat").network.with_classes(9))


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        ("partly", InvalidValue, "name none: give the function an attribute blocks = None"),
        ("not_finite", InvalidValue, "not finite, so its blocks cannot be checked; .* blocks = None"),
        ("sizeless", InvalidValue, "its clip is not known; write .*:sizeless@1x3xTxHxW"),
        ("pictures", UnsupportedModule, r"expected logits \(1, classes\), it returns \(1, 4, 4, 5, 5\)"),
        ("fails", InvalidValue, "does not make a model: RuntimeError: no such luck"),
        ("leaves", InvalidValue, ":leaves does not make a model: SystemExit: 0"),
        ("of_classes", InvalidValue, ":of_classes is made for a number of classes: say how many, --classes N"),
        ("made", InvalidValue, "has no 'made'; did you mean 'make'"),
        ("HEADER", InvalidValue, "has no 'HEADER'"),
        ("misspelled", InvalidValue, "its blocks cannot be read: AttributeError: 'Misspelled' .* 'dep'; blocks are a"),
        ("Number", InvalidValue, "its blocks cannot be read: TypeError: 'int' object is not iterable"),
        ("Headless", InvalidValue, "blocks one after the other compute something else than it; .* blocks = None"),
        ("OtherHead", InvalidValue, "its blocks one after the other compute something else than it"),
        ("BadTail", InvalidValue, "block '2' does not take what reaches it: "),
        (
            "Two",
            InvalidValue,
            "does not take a clip of 1x3x4x10x10 .*; its forward takes 2 inputs, a network here .*clip$",
        ),
        (
            "Halved",
            InvalidValue,
            "does not take a clip .*; the model converts its input itself, and hwbench runs it in fp32",
        ),
        (
            "Narrow",
            InvalidValue,
            "does not take a clip .*; give another size: --input, or look where it fails: --debug",
        ),
        ("Ends", InvalidValue, "does not take a clip .*: SystemExit: 0; look where it fails: --debug"),
        ("Misses", InvalidValue, "does not take a clip .*: KeyError: 'scale'; look where it fails: --debug"),
        ("PerFrame", UnsupportedModule, r"expected logits .*, it returns \(4, 5\); take the mean over frames$"),
        (
            "FramesFirst",
            InvalidValue,
            r"takes \(N, T, C, H, W\): wrap it, and call self.net\(x.transpose\(1, 2\)\)$",
        ),
        ("Keyed", UnsupportedModule, r"it returns dict; wrap it, and return its .* alone: self.net\(x\)\['logits'\]$"),
        ("WithFeatures", UnsupportedModule, r"it returns tuple; wrap it, .* logits alone: self.net\(x\)\[0\]$"),
        ("Transformer", UnsupportedModule, r"it returns Output; wrap it, .* logits alone: self.net\(x\).logits$"),
        ("Unreached", InvalidValue, "a clip does not reach spare.weight, which stays without values"),
        ("make@1x3x4x1x1x1", InvalidValue, "expected NxCxTxHxW"),
        ("make@1x4x4x10x10", InvalidValue, "expected one clip of three colours"),
    ],
)
def test_what_is_no_model_is_refused_in_words(package, function, error, message):
    with pytest.raises(error, match=message):
        loaded(package, function)


def test_a_layer_that_is_used_twice_is_two_blocks(package):
    assert loaded(package, "shared").names == ("0", "1", "2", "3", "4")


def test_a_model_that_names_no_blocks_is_one_block(package):
    assert loaded(package, "not_finite_whole").names == ("network",)
    (block,) = loaded(package, "unnamed").network.blocks
    assert block.kind == "hand-network"
    assert block.role.gives_logits


@pytest.mark.parametrize("name", ["Named", "Sized", "Cached", "Method"])
def test_a_class_that_computes_its_blocks_makes_a_model(package, name):
    assert len(loaded(package, name).network.blocks) == 3


@pytest.mark.parametrize("name", ["Itself", "OnePart"])
def test_one_block_that_computes_what_the_model_does_is_the_network(package, name):
    assert loaded(package, name).names == ("network",)


def test_lazy_layers_have_weights_and_the_modes_and_statistics_stay(package):
    model = loaded(package, "Lazy")
    with torch.random.fork_rng():
        torch.manual_seed(1)
        first, second = model.make(), model.make()
        torch.manual_seed(1)
        again = model.make()
    assert first.first.weight.shape == (4, 3, 3, 3, 3)
    assert (first.training, first.first.training, first.frozen.training) == (True, True, False)
    assert not first.norm.running_mean.any()
    assert first.norm.num_batches_tracked == 0
    assert torch.equal(first.first.weight, again.first.weight)
    assert not torch.equal(first.first.weight, second.first.weight)


def test_a_new_module_with_lazy_layers_has_seen_no_clip_and_shares_what_its_function_shares(package):
    tied = loaded(package, "Tied").make()
    assert tied.seen == []
    assert tied.spare.weight is tied.first.weight
    assert tied.first.weight.shape == (4, 3, 3, 3, 3)


def test_the_weights_of_lazy_layers_of_an_export_follow_from_its_seed(package, tmp_path):
    workspace = Workspace.create(tmp_path / "work")

    def weight(seed):
        given = SourceArguments(weights="random", seed=seed)
        return open_source(workspace, f"{package}:Lazy", given).module.first.weight

    assert torch.equal(weight(3), weight(3))
    assert not torch.equal(weight(3), weight(4))


def test_a_network_without_a_weight_to_train_is_not_trained(package):
    frozen = loaded(package, "Frozen").network
    with pytest.raises(InvalidValue, match=":Frozen: no weight is trained: all have requires_grad=False"):
        initial(frozen, Recipe())
    assert initial(loaded(package, "Lazy").network, Recipe()).first.weight.requires_grad


def test_another_version_of_the_code_is_another_row(package, tmp_path):
    before = loaded(package, "make").network.blocks
    by_hand._loaded.clear()
    assert loaded(package, "make").network.blocks == before
    source = tmp_path / f"{package}.py"
    source.write_text(source.read_text().replace("torch.relu(self.conv(x))", "self.conv(x)"))
    by_hand._loaded.clear()
    del sys.modules[package]
    after = loaded(package, "make").network
    assert after.blocks != before
    with pytest.raises(UnsupportedModule, match="made by another version of"):
        build(before[1])
    # weights of before fit: they may be loaded
    assert network(after).state_dict().keys() == network(resolved(before, after)).state_dict().keys()


def edited(source, *exchanges):
    """Changes a module that is imported; its size changes, by which Python knows its compiled file for an old one."""
    text = source.read_text()
    for before, after in exchanges:
        assert before in text
        text = text.replace(before, after)
    source.write_text(text)
    return importlib.reload(sys.modules[source.stem])


def test_after_a_reload_a_name_means_the_new_model(package, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    before = loaded(package, "make", 3).network
    loaded(package, "make", 4)
    edited(tmp_path / f"{package}.py", ("torch.relu(self.conv(x))", "self.conv(x)"), ("groups=4", "groups=2"))
    for module in (lambda: build(before.blocks[1]), lambda: eager_workload(whole_of(before).key)):
        with pytest.raises(UnsupportedModule, match=rf"another version of .* importlib\.reload of {package}$"):
            module()
    after = loaded(package, "make", 3).network
    assert [one != other for one, other in zip(before.blocks, after.blocks, strict=True)] == [True] * 3
    assert build(after.blocks[1]).conv.groups == 2
    assert network(before).state_dict().keys() == network(after).state_dict().keys()
    assert loaded(package, "make", 3).network is after


def test_after_a_reload_of_what_a_model_is_made_of_it_is_another(package, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    user = f"{package}user"
    (tmp_path / f"{user}.py").write_text(
        f"from torch import nn\nimport {package} as layers\ndef make():\n"
        "    return nn.Sequential(layers.stem(), layers.Deep(), layers.Logits(2))\n"
        "make.input_shape = (1, 3, 4, 10, 10)\n"
    )
    before = loaded(user, "make")
    edited(tmp_path / f"{package}.py", ("torch.relu(self.conv(x))", "self.conv(x)"))
    after = loaded(user, "make")
    assert after.function is before.function
    assert after.network.blocks != before.network.blocks
    monkeypatch.delitem(sys.modules, user)


def test_a_space_that_was_opened_before_a_reload_does_not_mix_blocks(package, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    workspace = Workspace.create(tmp_path / "w")
    space = open_space(workspace, f"{package}:make", 5)
    (member,) = space.architectures()
    edited(tmp_path / f"{package}.py", ("groups=4", "groups=2"))
    said = rf"^{package}:make: its blocks are others than .* loaded anew; open the space again$"
    for num_classes in (5, 1):
        with pytest.raises(InvalidValue, match=said):
            space.network(member, num_classes)
    again = open_space(workspace, f"{package}:make", 5)
    assert again.network(member, 5).blocks == loaded(package, "make", 5).network.blocks


def test_inner_blocks_may_have_the_width_of_the_classes(package, tmp_path, monkeypatch):
    """Where a number of classes is not known yet, another one stands for it in a network that is asked for its clip."""
    source = tmp_path / f"{package}.py"
    source.write_text(
        f"{source.read_text()}\ndef narrow(num_classes=5):\n"
        "    last = nn.Sequential(nn.AdaptiveAvgPool3d(1), nn.Flatten())\n"
        "    return nn.Sequential(stem(), nn.Conv3d(4, num_classes, 1), last)\nnarrow.input_shape = make.input_shape\n"
    )
    space = open_space(Workspace.create(tmp_path / "w"), f"{package}:narrow", 5)
    (member,) = space.architectures()
    assert space.network(member, 5).blocks == loaded(package, "narrow", 5).network.blocks
    assert space.network(member, 1).input == space.network(member, 5).input
    assert by_hand.trainable(space.network(member, 1).with_classes(5))[1].out_channels == 5


def whole_of(network):
    return Workload(network.blocks, network.input, Precision.FP32)


def resolved(blocks, network):
    return type(network)(network.name, blocks, network.input)


def test_folders_that_a_module_adds_to_the_import_path_stay(package, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    before, third = list(sys.path), tmp_path / "third"
    third.mkdir()
    (third / f"{package}layers.py").write_text(f"from {package} import make\n")
    user = f"{package}user"
    (tmp_path / f"{user}.py").write_text(
        "import os, sys\nsys.path.insert(0, os.path.join(os.path.dirname(__file__), 'third'))\n"
        f"def make():\n    from {package}layers import make\n    return make()\n"
        "make.input_shape = (1, 3, 4, 10, 10)\n"
    )
    assert loaded(user, "make").network.num_classes == 5
    assert sys.path == [str(third), *before]
    for name in (user, f"{package}layers"):
        monkeypatch.delitem(sys.modules, name)


def test_a_space_with_one_member(package, tmp_path):
    space = open_space(Workspace.create(tmp_path / "w"), f"{package}:make", 8)
    (member,) = space.architectures()
    assert member.key == f"{package}.make:frames=4,resolution=10"
    assert space.network(member, 8).blocks == loaded(package, "make", 8).network.blocks
    assert space.stage_depths(member) == (1,)
    sums = SpaceSums.of(space, lambda block, x: 1.0, num_classes=8)
    feasible = FeasibleSet(sums, 3.001)
    assert (feasible.count, feasible.best(sums).architecture, sums.total(member)) == (1, member, 3.0)
    assert len(list(feasible.reachable_parts())) == 3
    with pytest.raises(InvalidValue, match="a search space has square clips"):
        open_space(Workspace.create(tmp_path / "v"), f"{package}:wide", 8)


def test_a_model_of_a_script_is_no_space_and_still_a_network(package, tmp_path, monkeypatch):
    workspace, name = Workspace.create(tmp_path / "w"), "__main__:make@1x3x4x10x10"
    monkeypatch.setitem(sys.modules, "__main__", sys.modules[loaded(package, "make").name.module])
    with pytest.raises(InvalidValue, match=r"other processes can import: write it to mynets\.py and name mynets:make$"):
        open_spaces(workspace, [name])
    assert resolve(workspace, name, 4).num_classes == 4


def test_a_network_by_its_name(package, tmp_path):
    workspace = Workspace.create(tmp_path / "w")
    assert resolve(workspace, f"{package}:make", 4).num_classes == 4
    assert resolve(workspace, f"{package}:make@1x3x2x8x8", 4).input == TensorSpec(1, 3, 2, 8, 8)
    with pytest.raises(InvalidValue, match="unknown architecture 'nothing_there:make'"):
        resolve(workspace, "nothing_there:make", 4)


def test_eager_pytorch_runs_no_model_of_a_function(package, tmp_path):
    workload = loaded(package, "make").network.workload(Precision.FP32)
    with pytest.raises(UnsupportedModule, match=f"{package}.make is made by a function of yours; take another runtime"):
        EagerTorch().build(nn.Identity(), torch.zeros(1), workload, tmp_path / "x.eager.json", [])


def test_19_files_lead_to_no_code(tmp_path, monkeypatch):
    """Keys, spaces and architectures with the name of a module that would tell if it were imported."""
    (tmp_path / "trap.py").write_text("raise SystemExit('imported')")
    monkeypatch.chdir(tmp_path)
    workspace = Workspace.create(tmp_path / "w")
    key = "hand-network_i3_o8_k1x1x1_t4_h8_w8_ot1_oh1_ow1_p0-trap.make.network_v1_identity@1x3x4x8x8/fp32/auto"
    workload = Workload.parse(key)
    with pytest.raises(UnsupportedModule, match="no file names code to run"):
        build(workload.blocks[0])
    for name in ("trap:make", "trap.make"):
        with pytest.raises(UnknownName):
            load_space(workspace, name)
    with pytest.raises(UnknownName, match=r"package\.module:function"):
        resolve(workspace, "trap.make:frames=4,resolution=8", 4)
    space = tmp_path / "w" / "search_spaces" / "own.toml"
    space.write_text(
        'schema = 1\nname = "own"\nfamily = "by-hand"\ndescription = "trap:make"\n[input]\nframes = 4\nresolution = 8\n'
    )
    with pytest.raises(InvalidFile, match=r"command line as --space package\.module:function"):
        read_space(space)
    assert "trap" not in sys.modules


def test_a_build_worker_gets_the_name_from_who_asks(package, tmp_path):
    model = loaded(package, "make", 3)
    loaded(package, "flat")
    assert named_models([f"{package}.make"]) == [(f"{package}:make", 3)]
    code = (
        "import json, sys\n"
        "from hwbench.measure.build_worker import _load_models\n"
        "from hwbench.blocks import build\n"
        "from hwbench.specs import BlockSpec\n"
        "named, key = json.load(sys.stdin)\n"
        "_load_models(named)\n"
        "print(type(build(BlockSpec.parse(key))).__name__)\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        input=json.dumps([[(f"{package}:make", 3)], model.network.blocks[1].key]),
        env=python_environment(),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout.strip() == "Deep", done.stderr


def test_a_build_worker_finds_models_of_folders_that_a_program_added(package, tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.syspath_prepend(tmp_path)
    model = by_hand.load(ModelName.parse(f"{package}:flat@1x3x8x10x10"))
    workload = Workload(model.network.blocks, model.input, Precision.FP32)
    (result,) = build_all([workload], "faulty", tmp_path / "cache", processes=1, imports=["hwbench.testing.engines"])
    assert isinstance(result, Artifact), result.reason
    _load_models([])
