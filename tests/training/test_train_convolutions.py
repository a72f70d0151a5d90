import contextlib
import copy
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from test_train_loop import CPU, Clips
from tiny import RECIPE, Tiny
from torch import nn

from hwbench.training import fit
from hwbench.training.convolutions import _covered, _is_slow_pointwise, fast_convolutions, padded_convolutions
from hwbench.training.parts import recomputed


def gradients(conv: nn.Module, x: torch.Tensor, fast: bool) -> tuple[torch.Tensor, ...]:
    conv = copy.deepcopy(conv)
    x = x.clone(memory_format=torch.preserve_format).requires_grad_()
    if fast:
        with fast_convolutions():
            y = conv(x)
    else:
        y = conv(x)
    y.backward(torch.randn(y.shape, generator=torch.Generator().manual_seed(1)))
    return (y.detach(), x.grad, *(p.grad for p in conv.parameters()))


@pytest.mark.parametrize("kernel", [(3, 3, 3), (1, 3, 3), (3, 1, 1), (5, 1, 1), (5, 3, 3), (1, 5, 5), (3, 5, 5)])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("shape", [(2, 8, 4, 9, 9), (1, 5, 1, 7, 12), (3, 13, 5, 6, 5), (1, 16, 2, 1, 1)])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last_3d])
def test_gradients_are_those_of_autograd(
    kernel: tuple[int, int, int], stride: int, shape: tuple[int, ...], layout: torch.memory_format
) -> None:
    torch.manual_seed(0)
    channels = shape[1]
    half = tuple(k // 2 for k in kernel)
    conv = nn.Conv3d(channels, channels, kernel, (1, stride, stride), half, groups=channels, bias=False)
    x = torch.randn(shape).to(memory_format=layout)
    assert _covered(x, conv.weight, None, conv.stride, conv.padding, conv.dilation, conv.groups)
    plain, fast = gradients(conv, x, False), gradients(conv, x, True)
    assert torch.equal(plain[0], fast[0]) or (torch.get_num_threads() == 1 and kernel[1:] == (1, 1))
    for a, b in zip(plain, fast, strict=True):
        assert a.shape == b.shape
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "conv",
    [
        nn.Conv3d(8, 8, 3, padding=1, bias=False),
        nn.Conv3d(8, 16, 3, padding=1, groups=8, bias=False),
        nn.Conv3d(8, 8, 3, padding=1, groups=4, bias=False),
        nn.Conv3d(8, 8, 3, padding=1, groups=8),
        nn.Conv3d(8, 8, 3, stride=2, padding=1, groups=8, bias=False),
        nn.Conv3d(8, 8, 3, padding=0, groups=8, bias=False),
        nn.Conv3d(8, 8, 3, padding="same", groups=8, bias=False),
        nn.Conv3d(8, 8, 3, padding=2, dilation=2, groups=8, bias=False),
        nn.Conv3d(8, 8, 2, padding=1, groups=8, bias=False),
        nn.Conv3d(8, 8, 3, (1, 1, 2), padding=1, groups=8, bias=False),
        nn.Conv3d(8, 8, 3, padding=1, padding_mode="circular", groups=8, bias=False),
        nn.Conv3d(8, 8, 3, padding=1, groups=8, bias=False).double(),
    ],
    ids=str,
)
def test_every_other_convolution_is_left_as_it_is(conv: nn.Conv3d) -> None:
    x = torch.randn(2, 8, 5, 6, 6, dtype=conv.weight.dtype)
    for a, b in zip(gradients(conv, x, False), gradients(conv, x, True), strict=True):
        assert torch.equal(a, b)


def test_a_frozen_weight_and_a_frozen_input() -> None:
    conv = nn.Conv3d(8, 8, 3, padding=1, groups=8, bias=False)
    with fast_convolutions():
        y = conv(torch.randn(1, 8, 3, 4, 4))
    y.sum().backward()
    assert conv.weight.grad is not None
    conv.weight.requires_grad_(False)
    x = torch.randn(1, 8, 3, 4, 4, requires_grad=True)
    with fast_convolutions():
        conv(x).sum().backward()
    assert x.grad is not None


def test_a_network_trains_alike_with_and_without() -> None:
    x, labels = torch.randn(4, 3, 4, 16, 16), torch.tensor([0, 1, 2, 3])
    found = []
    for fast in (False, True):
        net = Tiny().eval()
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        for _ in range(5):
            optimizer.zero_grad()
            with fast_convolutions() if fast else torch.enable_grad():
                loss = nn.functional.cross_entropy(net(x), labels)
            loss.backward()
            optimizer.step()
        found.append(loss.item())
    assert found[0] == pytest.approx(found[1], rel=1e-4)


@pytest.fixture
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", [(2, 8, 4, 9, 9), (1, 5, 1, 7, 12), (15, 3, 5, 6, 5), (1, 16, 2, 1, 1)])
def test_pointwise_convolutions_of_few_clips_are_the_same_sums(shape: tuple[int, ...], bias: bool) -> None:
    torch.manual_seed(0)
    conv = nn.Conv3d(shape[1], 24, 1, bias=bias)
    x = torch.randn(shape).to(memory_format=torch.channels_last_3d)
    assert _is_slow_pointwise(x, conv.weight, conv.bias, conv.stride, conv.padding, conv.dilation, conv.groups)
    for a, b in zip(gradients(conv, x, False), gradients(conv, x, True), strict=True):
        assert a.shape == b.shape
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
    with fast_convolutions():
        assert conv(x).is_contiguous(memory_format=torch.channels_last_3d)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("kernel", [(3, 1, 1), (5, 1, 1)])
@pytest.mark.parametrize("shape", [(2, 8, 4, 9, 9), (1, 5, 1, 7, 12), (15, 13, 5, 6, 5)])
def test_depthwise_convolutions_over_time_of_few_clips_are_those_of_one_dnn(
    kernel: tuple[int, int, int], shape: tuple[int, ...]
) -> None:
    torch.manual_seed(0)
    conv = nn.Conv3d(shape[1], shape[1], kernel, 1, (kernel[0] // 2, 0, 0), groups=shape[1], bias=False)
    x = torch.randn(shape).to(memory_format=torch.channels_last_3d)
    for a, b in zip(gradients(conv, x, False), gradients(conv, x, True), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
    few = len(x)
    many = torch.cat([x] * 16).to(memory_format=torch.channels_last_3d)  # so many that torch takes oneDNN itself
    with fast_convolutions():
        assert torch.equal(conv(x), conv(many)[:few])


@pytest.mark.usefixtures("one_thread")
def test_blocks_that_are_computed_again_take_the_same_convolutions() -> None:
    """The backward pass of a step is outside of what makes convolutions fast."""
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Sequential(nn.Conv3d(8, 16, 1), nn.BatchNorm3d(16)),
        nn.Sequential(nn.Conv3d(16, 16, 3, padding=1, groups=16, bias=False), nn.BatchNorm3d(16)),
    )
    x = torch.randn(3, 8, 4, 6, 6).to(memory_format=torch.channels_last_3d)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        gradients = []
        for again in (contextlib.nullcontext(), recomputed(module)):
            module.zero_grad()
            with again:
                with fast_convolutions():
                    loss = module(x).square().sum()
                loss.backward()
            gradients.append([p.grad.clone() for p in module.parameters() if p.grad is not None])
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(one, two) for one, two in zip(*gradients, strict=True))


def test_pointwise_convolutions_that_torch_computes_fast_stay() -> None:
    conv, x = nn.Conv3d(8, 8, 1), torch.randn(2, 8, 2, 4, 4).to(memory_format=torch.channels_last_3d)
    few = (x, conv.weight, conv.bias, conv.stride, conv.padding, conv.dilation, conv.groups)
    assert _is_slow_pointwise(*few)
    many = x.repeat(8, 1, 1, 1, 1).to(memory_format=torch.channels_last_3d)
    assert not _is_slow_pointwise(many, *few[1:])
    assert not _is_slow_pointwise(x.contiguous(), *few[1:])
    assert not _is_slow_pointwise(*few[:3], (1, 2, 2), *few[4:])
    assert not _is_slow_pointwise(x.double(), conv.weight.double(), *few[2:])
    assert not _is_slow_pointwise(x, nn.Conv3d(8, 8, 3).weight, *few[2:])
    torch.set_num_threads(2)
    assert not _is_slow_pointwise(*few)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize(
    ("conv", "shape"),
    [
        (nn.Conv3d(8, 8, (5, 1, 1), padding=(2, 0, 0), groups=8, bias=False), (2, 8, 4, 8, 8)),  # the stem of an X3D
        (nn.Conv3d(8, 8, (5, 1, 1), padding="same", groups=8, bias=False), (2, 8, 3, 8, 8)),
        (nn.Conv3d(8, 8, 3, padding=1), (2, 8, 2, 8, 8)),
        (nn.Conv3d(8, 8, (7, 1, 1), (2, 1, 1), (3, 0, 0)), (2, 8, 7, 5, 5)),
        (nn.Conv3d(16, 16, (1, 3, 3), (1, 2, 2), (0, 1, 1), groups=16, bias=False), (2, 16, 2, 1, 1)),
        (nn.Conv2d(16, 16, 3, 2, 1), (2, 16, 1, 1)),
        (nn.Conv1d(16, 16, 3, 2, 1), (2, 16, 1)),
    ],
    ids=str,
)
def test_gradients_in_bf16_of_inputs_smaller_than_a_kernel(
    conv: nn.Module, shape: tuple[int, ...], again: bool
) -> None:
    torch.manual_seed(0)
    layout = {5: torch.channels_last_3d, 4: torch.channels_last}.get(len(shape), torch.contiguous_format)
    module = nn.Sequential(copy.deepcopy(conv)).to(memory_format=layout)
    x = torch.randn(shape).to(memory_format=layout)
    weight = module[0].weight
    (expected,) = torch.autograd.grad(conv_in_double(module[0], x).square().sum(), weight)
    for _ in range(3):
        with recomputed(module) if again else contextlib.nullcontext():
            fill_freed_memory()
            with torch.autocast("cpu", torch.bfloat16), padded_convolutions():
                y = module[0](x)
            fill_freed_memory()
            (gradient,) = torch.autograd.grad(y.float().square().sum(), weight)
        torch.testing.assert_close(gradient, expected, rtol=0, atol=0.02 * expected.abs().max().item())


def conv_in_double(conv: nn.Module, x: torch.Tensor) -> torch.Tensor:
    parameters = {name: parameter.double() for name, parameter in conv.named_parameters()}
    return torch.func.functional_call(conv, parameters, (x.double(),)).float()


def fill_freed_memory() -> None:
    for length in (16, 64, 256, 1000, 4096, 10000, 65536):
        blocks = [torch.full((length,), torch.nan) for _ in range(20)]
        del blocks


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(
    "conv",
    [
        nn.Conv3d(8, 8, (5, 1, 1), padding=(2, 0, 0)),
        nn.Conv3d(8, 8, (5, 1, 1), padding="same", dilation=(2, 1, 1)),
        nn.Conv3d(8, 8, (2, 1, 1), padding=(1, 0, 0), stride=(2, 1, 1)),
        nn.Conv3d(8, 8, (1, 5, 5), padding=2, stride=2),
        nn.Conv3d(8, 8, 2, padding="valid"),
        nn.Conv3d(8, 8, 3, padding=1, padding_mode="circular"),
    ],
    ids=str,
)
def test_padding_first_gives_the_same_convolution(conv: nn.Conv3d) -> None:
    x = torch.randn(2, 8, 4, 3, 2)
    with padded_convolutions():
        padded, in_words = conv(x), torch.conv3d(input=x, weight=conv.weight, padding=4)
        torch.testing.assert_close(conv(x[0]), padded[0], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(padded, conv(x), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(in_words, torch.conv3d(x, conv.weight, padding=4), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("again", [False, True])
def test_a_network_whose_kernel_covers_more_frames_than_the_clip_has_trains_in_bf16(clips: Clips, again: bool) -> None:
    recipe = replace(RECIPE, epochs=1, optimizer="sgd", learning_rate=0.01, ema_decay=0.0, gradient_checkpointing=again)
    weights = []
    for precision in ("fp32", "bf16"):
        net = Tiny()
        net.layers[3] = nn.Conv3d(8, 8, (5, 1, 1), padding=(2, 0, 0), groups=8, bias=False)
        nn.init.constant_(net.layers[3].weight, 0.2)
        fill_freed_memory()
        fit(net, *clips, replace(recipe, precision=precision), resources=CPU, progress=lambda _: fill_freed_memory())
        weights.append(net.layers[3].weight.detach() - 0.2)
    torch.testing.assert_close(weights[1], weights[0], rtol=0, atol=0.1 * weights[0].abs().max().item())
