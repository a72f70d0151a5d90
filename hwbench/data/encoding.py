"""Writing small video files: the synthetic set, and the files which tests need."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import numpy.typing as npt

from hwbench.errors import MissingDependency
from hwbench.workspace import writing

# FFmpeg counts quality in steps of 1/118 of a quantiser. Quantiser 2 of 31, like quality 14 of 51 of x264: the marks of
# the encoder stay below what a network can read a direction of time from. The integer transforms give the same bits on
# every processor.
_MPEG4 = {"flags": "+qscale+bitexact", "global_quality": str(2 * 118), "dct": "int", "idct": "simple", "threads": "1"}
# In the order of preference. The first is FFmpeg's own; x264 is under the GPL, and absent from some builds.
_OPTIONS = {"mpeg4": _MPEG4, "libx264": {"crf": "14", "preset": "veryfast", "threads": "1", "bf": "0"}}
_GOP = 8


def write_video(path: Path, frames: npt.NDArray[np.uint8], *, fps: int) -> None:
    """Encodes uint8 frames (T, H, W, 3) in RGB as MPEG-4 part 2, or as H.264 where that encoder is absent.

    4:2:0 colour, so height and width must be even; every 8th frame is a keyframe. The same frames give the same file.

    Raises:
        MissingDependency: The installed PyAV has neither encoder.
        WorkspaceError: No rights or no room.
    """
    codec = next((name for name in _OPTIONS if name in av.codecs_available), None)
    if codec is None:
        raise MissingDependency(
            f"writing videos needs one of the encoders {', '.join(_OPTIONS)}, which this PyAV lacks; "
            "install the wheel from PyPI: pip install --force-reinstall --only-binary :all: av"
        )
    with writing(path), av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=fps, options=_OPTIONS[codec])
        stream.height, stream.width = frames.shape[1:3]
        stream.pix_fmt = "yuv420p"
        stream.gop_size = _GOP
        stream.time_base = Fraction(1, fps)
        for array in frames:
            # Converted here: left to the encoder (PyAV 18), now and then a frame comes out otherwise on a busy machine.
            frame = av.VideoFrame.from_ndarray(array, format="rgb24").reformat(format=stream.pix_fmt)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
