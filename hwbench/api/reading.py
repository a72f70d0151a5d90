"""What a request says of how videos are read: who decodes, what is kept of it, and how clips are cut."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwbench.errors import InvalidValue
from hwbench.units import parse_bytes, parse_duration

if TYPE_CHECKING:
    from hwbench.data import ClipSpec, Reading
    from hwbench.training import Checkpoint

DECODER = "pyav"
# The modality that is no flow.
RGB = "rgb"
DECODER_HELP = "Who decodes videos: pyav, torchcodec, or one of another package."
MODALITY_HELP = (
    "What a network sees: rgb, flow (files beside the videos), flow:FOLDER, or flow:tvl1, flow:dis, flow:raft=FILE, "
    "computed once and kept."
)
DECODED_CACHE_HELP = 'Keep decoded videos on the disk, up to a size such as "20GiB"; for short videos and many epochs.'
SPAN_HELP, STRIDE_HELP = 'Length of a clip, such as "2 s".', "Frames from one of a clip to the next."


def reading_of(decoder: str, decoded_cache: str | None = None, modality: str | None = None) -> Reading:
    """How the options --decoder, --decoded-cache and --modality want videos to be read.

    Raises:
        InvalidValue: What is no size, or no modality.
    """
    from hwbench.data import Reading
    from hwbench.data.flow_stream import FlowStream

    flow = None if modality is None else FlowStream.parse(modality)
    return Reading(decoder, check_decoded_cache(decoded_cache), flow)


def check_modality(modality: str | None, checkpoint: Checkpoint) -> None:
    """Raises InvalidValue where a network that was trained on flow is to see pictures, which have other channels."""
    if modality == RGB and checkpoint.flow is not None:
        raise InvalidValue(f"--modality: {checkpoint.path} was trained on {checkpoint.flow}; leave --modality out")


def check_decoded_cache(text: str | None) -> int:
    """Bytes of --decoded-cache, 0 where it was not given; raises InvalidValue for what is no size."""
    return 0 if text is None else parse_bytes(text, name="--decoded-cache")


def check_clip(span: str | None, stride: int | None) -> None:
    """Raises InvalidValue where --span is no time, or --stride is given, too."""
    if span is not None:
        parse_duration(span, name="--span")
    if span is not None and stride is not None:
        raise InvalidValue("a clip has a --span or a --stride, not both; leave one out")


def clip_of(frames: int, span: str | None, stride: int | None) -> ClipSpec | None:
    """How --span or --stride cut clips of so many frames; None: neither is given."""
    from hwbench.data.clips import ClipSpec

    if span is None and stride is None:
        return None
    return ClipSpec(frames, stride, None if span is None else parse_duration(span, name="--span"))
