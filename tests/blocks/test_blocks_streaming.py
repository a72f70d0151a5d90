"""24: a causal X3D frame by frame equals it on the clip; what a stream keeps, forgets and refuses."""

import pytest
import torch

from hwbench.blocks import build
from hwbench.blocks.deployment import deploy_form, stream_form
from hwbench.blocks.layout import frames_to_batch
from hwbench.blocks.mobile_cpu import Conv3dSeparableDwBnAct, ResidualBlock, SqueezeExcitation
from hwbench.blocks.mobile_cpu.layouts import variants
from hwbench.blocks.streaming import FRAMES, Replayed, StreamForm
from hwbench.errors import InvalidValue, UnsupportedModule
from hwbench.models.assembly import assemble
from hwbench.specs import STREAM, BlockSpec, Network, Precision, TensorSpec, Workload
from hwbench.specs.bottlenecks import x3d_head, x3d_stage, x3d_stem

SIZE = 20


def network(*kernels: str) -> Network:
    """A small X3D with squeeze-excite, a stage for each kernel."""
    blocks = [x3d_stem(8)]
    for kernel in kernels or ("3x3x3", "1x3x3+3x1x1"):
        spec = BlockSpec.parse(f"x3d_i8_m8_o8_k{kernel}_relu").kernel
        blocks += x3d_stage(8, depth=2, width=8, expansion=2.25, kernel=spec, se=0.5, act="swish", stride=2)
    head = x3d_head(8, 18, 16, 5)
    return Network("small", (*blocks, head), TensorSpec(1, 3, 4, SIZE, SIZE))


def made(net: Network, seed: int = 0) -> torch.nn.Module:
    """The module in eval mode, with the statistics of random clips in its normalisations."""
    torch.manual_seed(seed)
    module = assemble(net.blocks, 0.0)
    with torch.no_grad():
        for _ in range(2):
            module.train()(torch.randn(4, 3, 5, SIZE, SIZE))
    return module.eval()


def run(form: StreamForm, clip: torch.Tensor) -> list[torch.Tensor]:
    """Logits behind each frame of a clip (1, 3, T, H, W) from the start."""
    states, answers = form.start(clip.dtype), []
    for frame in clip.unbind(2):
        answer, *renewed = form(frame, *states)
        states = tuple(renewed)
        answers.append(answer)
    return answers


@torch.inference_mode()
def test_stream_equals_the_causal_clip_network_after_every_one_of_64_frames() -> None:
    net = network().causal()
    module, clip = made(net), torch.randn(1, 3, 64, SIZE, SIZE)
    for frames, answer in enumerate(run(stream_form(module, net.input), clip), start=1):
        expected = module(clip[:, :, :frames])
        assert (answer - expected).abs().max() <= 1e-5 * expected.abs().max()


@torch.inference_mode()
def test_stream_is_exact_in_double_precision_for_several_clips_at_once() -> None:
    net = network("3x3x3").causal()
    module, clip = made(net).double(), torch.randn(3, 3, 7, SIZE, SIZE, dtype=torch.float64)
    form = stream_form(module, TensorSpec(3, 3, 7, SIZE, SIZE))
    torch.testing.assert_close(run(form, clip)[-1], module(clip), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@torch.inference_mode()
def test_networks_in_16_bits(dtype: torch.dtype) -> None:
    net = network("3x3x3").causal()
    module, clip = made(net), torch.randn(1, 3, 4, SIZE, SIZE)
    expected = module(clip)
    module, clip = module.to(dtype), clip.to(dtype)
    form = stream_form(module, net.input)
    for answer in (run(form, clip)[-1], deploy_form(module, net.input)(frames_to_batch(clip))):
        assert answer.dtype is dtype
        torch.testing.assert_close(answer.float(), expected, rtol=0, atol=0.05 * float(expected.abs().max()))
    frames = torch.full((1, 1, 1, 1), 5000.0)
    assert form(clip[:, :, 0], frames, *form.start(dtype)[1:])[1].item() == 5001


@torch.inference_mode()
def test_no_frame_of_a_causal_network_depends_on_a_later_one_and_an_ordinary_one_does() -> None:
    """Blocks in front of the head: frame 3 is the same whatever comes behind it."""
    clip = torch.randn(1, 3, 6, SIZE, SIZE)
    changed = clip.clone()
    changed[:, :, 4:] += 1
    for net, same in ((network().causal(), True), (network(), False)):
        body = [child for name, child in made(net).named_children() if name.startswith("s")]
        before, after = clip, changed
        for stage in body:
            before, after = stage(before), stage(after)
        assert torch.allclose(before[:, :, :4], after[:, :, :4], atol=1e-6) is same


@pytest.mark.parametrize("variant", ["auto", *variants.names()])
@torch.inference_mode()
def test_deploy_form_of_a_causal_clip_network_is_exact_in_every_layout(variant: str) -> None:
    net = network().causal()
    module, x = made(net).double(), TensorSpec(2, 3, 5, SIZE, SIZE)
    clip = torch.randn(x.shape, dtype=torch.float64)
    made_of = deploy_form(module, x, variant)(frames_to_batch(clip))
    torch.testing.assert_close(made_of, module(clip), rtol=1e-9, atol=1e-9)


@torch.inference_mode()
def test_window_that_starts_anew_two_streams_in_turns_and_a_lost_frame() -> None:
    net = network().causal()
    module = made(net)
    form = stream_form(module, net.input)
    first, second = torch.randn(1, 3, 6, SIZE, SIZE), torch.randn(1, 3, 6, SIZE, SIZE)
    alone = [run(form, clip)[-1] for clip in (first, second)]
    # Two streams: one set of states each, the form keeps nothing.
    kept = [form.start(), form.start()]
    for frames in zip(first.unbind(2), second.unbind(2)):
        for number, frame in enumerate(frames):
            answer, *renewed = form(frame, *kept[number])
            kept[number] = tuple(renewed)
            if frames[0] is first.unbind(2)[-1]:
                torch.testing.assert_close(answer, alone[number])
    # Zeros begin anew: the second clip behind the first is as if it stood alone. Without zeros it is not.
    torch.testing.assert_close(run(form, second)[-1], alone[1])
    assert not torch.allclose(run(form, torch.cat([first, second], 2))[-1], alone[1], rtol=1e-3)
    # A frame that is left out is a clip without it; one that is given twice is a clip that has it twice.
    left_out = first[:, :, [0, 1, 3, 4, 5]]
    torch.testing.assert_close(run(form, left_out)[-1], module(left_out), rtol=1e-4, atol=1e-5)
    repeated = first[:, :, [0, 1, 1, 3, 4, 5]]
    torch.testing.assert_close(run(form, repeated)[-1], module(repeated), rtol=1e-4, atol=1e-5)


@torch.inference_mode()
def test_memory_changes_nothing_up_to_its_length_and_forgets_from_there_on() -> None:
    net = network().causal()
    module, clip = made(net), torch.randn(1, 3, 40, SIZE, SIZE)
    endless, bounded = (run(stream_form(module, net.input, memory), clip) for memory in (None, 4))
    for before, after in zip(endless[:4], bounded[:4]):
        torch.testing.assert_close(before, after)
    assert not torch.allclose(endless[-1], bounded[-1], rtol=1e-3)
    other = clip.clone()
    other[:, :, :4] = torch.randn(1, 3, 4, SIZE, SIZE)
    apart = [
        (run(stream_form(module, net.input, memory), other)[-1] - answers[-1]).abs().max()
        for memory, answers in ((None, endless), (4, bounded))
    ]
    assert apart[1] < apart[0] / 10  # 36 frames later the bounded one has forgotten the other start


def test_states_are_named_begin_as_zeros_and_have_the_size_of_outputs() -> None:
    net = network("3x3x3").causal()
    form = stream_form(made(net), net.input)
    assert form.states[0].name == FRAMES
    assert len({state.name for state in form.states}) == len(form.states)
    assert all(not zeros.any() and tuple(zeros.shape) == state.shape for zeros, state in zip(form.start(), form.states))
    stem = [state.shape for state in form.states if state.name.startswith("s1.")]
    assert stem == [(1, 8, SIZE // 2, SIZE // 2)] * 4
    replayed = Replayed(form)(torch.randn(3, 3, SIZE, SIZE))
    assert replayed.shape == (1, 5)


def test_what_has_no_stream_form_says_why() -> None:
    ordinary = network()
    with pytest.raises(UnsupportedModule, match="hwbench train NETWORK --causal"):
        ordinary.frame(Precision.FP32)
    with pytest.raises(UnsupportedModule, match="frames to come"):
        stream_form(made(ordinary), ordinary.input)
    with pytest.raises(UnsupportedModule, match="no stream form"):
        stream_form(SqueezeExcitation(8, 8, is_3d=True), TensorSpec(1, 8, 1, 9, 9))
    branch = Conv3dSeparableDwBnAct(8)
    with pytest.raises(UnsupportedModule, match="no stream form"):
        stream_form(ResidualBlock(branch), TensorSpec(1, 8, 1, 9, 9))
    with pytest.raises(UnsupportedModule, match="no stream form"):
        stream_form(torch.nn.Conv3d(3, 3, 1), ordinary.input)
    stepping = build(BlockSpec.parse("x3d_i8_m8_o8_k3x3x3_ts2_ca1_relu"))
    with pytest.raises(UnsupportedModule, match="steps over frames"):
        stream_form(stepping, TensorSpec(1, 8, 1, 9, 9))
    with pytest.raises(InvalidValue, match="at least one frame"):
        stream_form(made(ordinary.causal()), ordinary.input, memory=0)
    with pytest.raises(UnsupportedModule, match="no causal form"):
        Network("other", (BlockSpec.parse("conv_i3_o8_k3x3x3_relu"), *ordinary.blocks[1:]), ordinary.input).causal()
    with pytest.raises(UnsupportedModule, match="ca1"):
        build(BlockSpec.parse("x3d_i8_m8_o8_k3x3x3_ca2_relu"))


def test_causal_networks_have_keys_and_weights_of_the_ordinary_one() -> None:
    ordinary = network()
    causal = ordinary.causal()
    assert causal.causal() == causal
    assert causal.is_causal
    assert not ordinary.is_causal
    assert all(BlockSpec.parse(block.key) == block for block in causal.blocks)
    shapes = [{k: v.shape for k, v in assemble(net.blocks).state_dict().items()} for net in (ordinary, causal)]
    assert shapes[0] == shapes[1]
    workload = causal.frame(Precision.INT8)
    assert workload.variant == STREAM
    assert Workload.parse(workload.key) == workload
    with pytest.raises(InvalidValue, match="one frame at a time"):
        Workload(causal.blocks, causal.input, variant=STREAM)
