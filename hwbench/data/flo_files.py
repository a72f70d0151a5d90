"""Files ``.flo`` of optical flow (Baker et al. 2011, "A Database and Evaluation Methodology for Optical Flow"):
the number 202021.25, width, height, then float32 (H, W, 2), little-endian; pixels to the right and down.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from hwbench.errors import VideoError

ENDING = ".flo"
_TAG = np.float32(202021.25).tobytes()
# Values beyond this stand for "not known" in the files of the authors: no motion is read there.
_UNKNOWN_PX = 1e9
_LARGEST_SIDE = 2**16


def read_flo(path: Path) -> npt.NDArray[np.float32]:
    """The flow in a file: float32 (H, W, 2), in pixels; what is not known is 0.

    Raises:
        VideoError: The file is missing, is no such file, or ends early.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise VideoError(f"{path}: {error.strerror} (expected a .flo file)") from None
    width, height = (int(side) for side in np.frombuffer(content[4:12].ljust(8, b"\0"), "<i4"))
    if content[:4] != _TAG or not (0 < width <= _LARGEST_SIDE and 0 < height <= _LARGEST_SIDE):
        raise VideoError(f"{path}: not a .flo file: expected the number 202021.25, a width and a height")
    if len(content) != 12 + 8 * width * height:
        raise VideoError(f"{path}: expected {12 + 8 * width * height} bytes for {width}x{height}, got {len(content)}")
    flow = np.frombuffer(content, "<f4", offset=12).reshape(height, width, 2).astype(np.float32)
    return np.where(np.abs(flow) < _UNKNOWN_PX, flow, np.float32(0))
