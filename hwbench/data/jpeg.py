"""Pictures as JPEG files in memory, by the encoder that PyAV has."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import av
import numpy as np
import numpy.typing as npt


class JpegEncoder:
    """Encodes pictures of one size.

    Args:
        height: Of the pictures in pixels.
        width: Of the pictures in pixels.
        quantiser: 2 (close to lossless) to 31.
        fine_colour: Keep the colour of every pixel, not of four together.
    """

    def __init__(self, height: int, width: int, *, quantiser: int = 2, fine_colour: bool = False) -> None:
        self._format = "yuvj444p" if fine_colour else "yuvj420p"
        context: Any = av.CodecContext.create("mjpeg", "w")
        context.height, context.width, context.pix_fmt = height, width, self._format
        context.time_base = Fraction(1, 25)
        context.options = {"qmin": str(quantiser), "qmax": str(quantiser), "flags": "+bitexact", "threads": "1"}
        self._context = context
        self._count = 0

    def encode(self, picture: npt.NDArray[np.uint8]) -> bytes:
        """The file of a picture: uint8 (H, W, 3), RGB."""
        plain = av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), format="rgb24")
        frame = plain.reformat(format=self._format, threads=1)
        frame.pts, frame.time_base = self._count, Fraction(1, 25)
        self._count += 1
        return b"".join(bytes(packet) for packet in self._context.encode(frame))
