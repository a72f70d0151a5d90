"""How the camera was held: frames turned and mirrored as their display matrix says."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from av.sidedata.sidedata import SideDataContainer, Type

# Signs of a, b, c, d of a display matrix: a picture's (x, y) is shown at (a x + c y, b x + d y).
DisplayMatrix = tuple[int, int, int, int]
UPRIGHT: DisplayMatrix = (1, 0, 0, 1)


def display_matrix(frame: Any) -> DisplayMatrix:
    """The display matrix of an ``av.VideoFrame``; ``UPRIGHT`` where it has none.

    ``frame.rotation`` does not do: it is 0 for a picture that is mirrored top to bottom.
    """
    # Not frame.side_data: the frame would keep it, and it the frame, with all its bytes until Python looks for cycles.
    held = SideDataContainer(frame)  # type: ignore[call-arg]  # PyAV's types leave its argument out
    data = next((bytes(item) for item in held if item.type is Type.DISPLAYMATRIX), b"")
    if len(data) < 36:
        return UPRIGHT
    values = np.frombuffer(data[:36], dtype=np.int32)
    a, b, c, d = (int(np.sign(round(int(values[place]) / 0x10000))) for place in (0, 1, 3, 4))
    return (a, b, c, d)


def upright(picture: npt.NDArray[np.uint8], matrix: DisplayMatrix) -> npt.NDArray[np.uint8]:
    """A view of a picture (H, W, 3), turned by quarters and mirrored; any other matrix leaves it as it is."""
    a, b, c, d = matrix
    if b and c and not a and not d:
        picture = picture.transpose(1, 0, 2)
        across, down = c, b
    elif a and d and not b and not c:
        across, down = a, d
    else:
        return picture
    return picture[:: (-1 if down < 0 else 1), :: (-1 if across < 0 else 1)]
