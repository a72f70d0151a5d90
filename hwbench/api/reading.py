"""What a request says of how videos are read: who decodes, and what is kept of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwbench.units import parse_bytes

if TYPE_CHECKING:
    from hwbench.data import Reading

DECODER_HELP = "Who decodes videos: pyav, torchcodec, or one of another package."
DECODED_CACHE_HELP = 'Keep decoded videos on the disk, up to a size such as "20GiB"; for short videos and many epochs.'


def reading_of(decoder: str, decoded_cache: str | None) -> Reading:
    """How the options --decoder and --decoded-cache want videos to be read; raises InvalidValue for what is no size."""
    from hwbench.data import Reading

    return Reading(decoder, check_decoded_cache(decoded_cache))


def check_decoded_cache(text: str | None) -> int:
    """Bytes of --decoded-cache, 0 where it was not given; raises InvalidValue for what is no size."""
    return 0 if text is None else parse_bytes(text, name="--decoded-cache")
