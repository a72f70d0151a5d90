"""Packets of a stream: reading them in order, and what they tell before anything is decoded."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any


def packets_of(container: Any, stream: Any) -> Iterator[Any]:
    """Packets of a stream from where the container stands; the last is empty and flushes the decoder.

    Empty packets of the file are left out: decoders refuse them. Ogg repeats a frame of Theora with one.
    PyAV loses 150 bytes for good with each of its iterators that is dropped before its end and not closed: ``demux``,
    and with it ``decode``. This one closes it.
    """
    with contextlib.closing(container.demux(stream)) as packets:
        for packet in packets:
            if packet.size:
                yield packet
    yield packet


def packets_from_keyframe(container: Any, stream: Any, pts: int) -> Iterator[Any]:
    """Packets of a stream from the keyframe on that a seek to ``pts`` gives, which may lie behind ``pts``.

    In MPEG-TS and MPEG-PS a seek may land between keyframes. MPEG-4 part 2 decodes what it finds there against a grey
    picture and says nothing.
    """
    container.seek(pts, stream=stream, backward=True, any_frame=False)
    return itertools.dropwhile(lambda packet: not packet.is_keyframe, packets_of(container, stream))


@dataclass(frozen=True)
class Packet:
    """What the container says of a packet; a time stamp that is missing is the smallest of 64 bits."""

    pts: int
    dts: int
    duration: int
    key: bool
    corrupt: bool
    discard: bool
    shown: bool

    @classmethod
    def of(cls, packet: Any, codec: str) -> Packet:
        missing = -(2**63)
        return cls(
            missing if packet.pts is None else packet.pts,
            missing if packet.dts is None else packet.dts,
            packet.duration or 0,
            packet.is_keyframe,
            packet.is_corrupt,
            packet.is_discard,
            # Alternate reference frames of VP8 are decoded and never shown: bit 4 of the first byte (RFC 6386, 9.1).
            codec != "vp8" or bool(bytes(packet)[0] & 0x10),
        )


def claimed_packets(container: Any, stream: Any) -> int:
    """Packets which the file's own index says it has; 0 where it has none."""
    name = container.format.name
    if "mp4" in name:
        # The index after edit lists are applied; the count in the header is that before.
        return len(getattr(stream, "index_entries", ()))
    return int(stream.frames) if name == "avi" else 0


def num_chunks(container: Any, packets: Sequence[Packet]) -> int:
    """Packets; of AVI with the empty chunks, which repeat the frame before them and count as time."""
    if container.format.name != "avi" or not packets or max(p.dts for p in packets) < len(packets):
        return len(packets)
    # An empty chunk may be the last one: with B-frames the last frame is shown behind it.
    return 1 + max(max(p.pts, p.dts) for p in packets)


def has_usable_times(container: Any, packets: Sequence[Packet]) -> bool:
    """Whether frames can be found by time stamp: all present, none twice; AVI knows no order but that of decoding."""
    pts = {p.pts for p in packets}
    if len(pts) < len(packets) or min(pts) == -(2**63):
        return False
    return container.format.name != "avi" or all(p.pts == p.dts for p in packets)
