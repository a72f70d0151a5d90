"""How optical flow is computed where there are no files of it: two classical methods, and a network."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from hwbench.data.decoding import Frames
from hwbench.data.flow import Flow
from hwbench.errors import InvalidFile, InvalidValue, MissingDependency

# Presets of DIS, with the shorter side of a picture from which on they find no scale of fewer pixels than a patch of 8:
# they look at a quarter or half of the pixels on a side. OpenCV refuses some that are smaller and crashes with others.
_PRESETS = {"ultrafast": 32, "fast": 32, "medium": 16}
_NETWORKS = ("raft_large", "raft_small")
# RAFT looks at an eighth of the pixels, at four scales: 128 are the least.
_STEP, _LEAST = 8, 128
# TV-L1 takes differences of pixels beside each other.
_LEAST_TVL1 = 2
# Rec. 601, from R, G, B to grey.
_LUMA = np.array([0.299, 0.587, 0.114], np.float32)


class FlowMethod(Protocol):
    """Computes the flow between two frames; a frozen dataclass."""

    @property
    def name(self) -> str:
        """Tells it, with its settings, from all others: what is kept on the disk is kept under this name."""
        ...

    def __call__(self, first: Frames, second: Frames) -> Flow:
        """uint8 (H, W, 3) twice -> float32 (H, W, 2): pixels to the right and down from the first to the second."""
        ...


@dataclass(frozen=True)
class DisFlow:
    """Dense inverse search (Kroeger et al. 2016, arXiv:1603.03590) by OpenCV; needs no weights.

    Raises:
        MissingDependency: OpenCV is not installed.
        InvalidValue: A preset that is none of ``ultrafast``, ``fast`` and ``medium``.
    """

    preset: str = "medium"

    def __post_init__(self) -> None:
        if self.preset not in _PRESETS:
            raise InvalidValue(f"flow: expected a preset of {', '.join(_PRESETS)}, got {self.preset!r}")
        _opencv()

    @property
    def name(self) -> str:
        return f"dis-{self.preset}"

    def __call__(self, first: Frames, second: Frames) -> Flow:
        opencv = _opencv()
        search = opencv.DISOpticalFlow_create(list(_PRESETS).index(self.preset))
        grey = [opencv.cvtColor(np.ascontiguousarray(frame), opencv.COLOR_RGB2GRAY) for frame in (first, second)]
        flow: Flow = search.calc(*(_enlarged(picture, _PRESETS[self.preset]) for picture in grey), None)
        height, width = first.shape[:2]
        return flow[:height, :width]


@dataclass(frozen=True)
class TvL1Flow:
    """TV-L1 (Zach, Pock and Bischof 2007; Wedel et al. 2009, doi:10.1007/978-3-642-03061-1_2) by scikit-image.

    The method that flow networks of two streams were trained with; slow, and needs no weights.

    Attributes:
        attachment: Weight of the data term, of grey levels from 0 to 1.
        warps: Times that the second image is warped at each scale.

    Raises:
        MissingDependency: scikit-image is not installed.
        InvalidValue: Not a positive weight, or no warp.
    """

    attachment: float = 15.0
    warps: int = 5

    def __post_init__(self) -> None:
        if not self.attachment > 0 or self.warps < 1:
            raise InvalidValue(f"flow: expected an attachment above 0 and warps of at least 1, got {self}")
        _scikit_image()

    @property
    def name(self) -> str:
        return f"tvl1-{self.attachment:g}-{self.warps}"

    def __call__(self, first: Frames, second: Frames) -> Flow:
        grey = [(frame @ _LUMA / 255).astype(np.float32) for frame in (first, second)]
        grey = [_enlarged(picture, _LEAST_TVL1) for picture in grey]
        down, right = _scikit_image()(*grey, attachment=self.attachment, num_warp=self.warps)
        height, width = first.shape[:2]
        return np.stack([right, down], axis=-1).astype(np.float32)[:height, :width]


@dataclass(frozen=True)
class RaftFlow:
    """RAFT (Teed and Deng 2020, arXiv:2003.12039) as torchvision has it.

    Attributes:
        weights: A file of its parameters, as torchvision publishes them.
        network: ``raft_large`` or ``raft_small``.
        updates: Steps of refinement.
        device: Where it runs.

    Raises:
        InvalidValue: Another network.
    """

    weights: Path
    network: str = "raft_large"
    updates: int = 12
    device: str = "cpu"

    def __post_init__(self) -> None:
        if self.network not in _NETWORKS or self.updates < 1:
            raise InvalidValue(f"flow: expected {' or '.join(_NETWORKS)} and updates of at least 1, got {self}")

    @property
    def name(self) -> str:
        return f"{self.network}-{self.updates}-{_digest(self.weights)}"

    def __call__(self, first: Frames, second: Frames) -> Flow:
        network = _raft(self.network, self.weights, self.device)
        height, width = first.shape[:2]
        padding = (0, _missing(width), 0, _missing(height))
        images = (_image(frame, padding).to(self.device) for frame in (first, second))
        with torch.inference_mode():
            flow = network(*images, num_flow_updates=self.updates)[-1][0, :, :height, :width]
        pixels: Flow = np.ascontiguousarray(flow.permute(1, 2, 0).float().cpu().numpy())
        return pixels


def _dis(rest: str) -> FlowMethod:
    return DisFlow(rest or "medium")


def _tvl1(rest: str) -> FlowMethod:
    if rest:
        raise InvalidValue(f"flow: tvl1 takes nothing behind it, got {rest!r}; other settings are those of TvL1Flow")
    return TvL1Flow()


def _raft_of(rest: str) -> FlowMethod:
    if not rest:
        raise InvalidValue("flow: raft needs a file of its weights, as torchvision publishes them: flow:raft=FILE")
    return RaftFlow(Path(rest))


METHODS: Mapping[str, Callable[[str], FlowMethod]] = {"tvl1": _tvl1, "dis": _dis, "raft": _raft_of}


def flow_method(text: str) -> FlowMethod:
    """The method of a text: ``tvl1``, ``dis``, ``dis=PRESET`` or ``raft=FILE``, a file of weights of RAFT.

    Raises:
        InvalidValue: Another text.
        MissingDependency: What the method needs is not installed.
    """
    name, _, rest = text.partition("=")
    if name not in METHODS:
        raise InvalidValue(f"flow: expected a method of {', '.join(METHODS)}, got {text!r}")
    return METHODS[name](rest)


def _scikit_image() -> Callable[..., Any]:
    try:
        from skimage.registration import optical_flow_tvl1
    except ImportError:
        raise MissingDependency(
            "computing optical flow by TV-L1 needs scikit-image, which is not installed; "
            "install it with: python -m pip install 'hwbench[flow]'"
        ) from None
    method: Callable[..., Any] = optical_flow_tvl1
    return method


def _opencv() -> Any:
    try:
        import cv2
    except ImportError:
        raise MissingDependency(
            "computing optical flow needs OpenCV, which is not installed; "
            "install it with: python -m pip install 'hwbench[flow]'"
        ) from None
    return cv2


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()[:12]
    except OSError as error:
        raise InvalidFile(f"{path}: {error.strerror} (expected weights of RAFT)") from None


@functools.lru_cache(2)
def _raft(name: str, weights: Path, device: str) -> torch.nn.Module:
    from torchvision.models import optical_flow

    from hwbench.models.files import read_tensors

    _, values = read_tensors(weights, f"weights of {name}")
    network: torch.nn.Module = getattr(optical_flow, name)(weights=None, progress=False)
    try:
        network.load_state_dict(values)
    except Exception as error:
        text = " ".join(str(error).split())[:200]
        raise InvalidFile(f"{weights}: expected weights of {name} ({text})") from None
    return network.eval().to(device)


def _enlarged(picture: Any, least: int) -> Any:
    """A picture (H, W) with at least so many pixels on a side; what is added repeats the last row and column."""
    height, width = picture.shape
    missing = ((0, max(0, least - height)), (0, max(0, least - width)))
    return np.pad(picture, missing, mode="edge") if np.any(missing) else picture


def _missing(length: int) -> int:
    """Pixels up to the next length that the network takes."""
    return max(_LEAST, -(-length // _STEP) * _STEP) - length


def _image(frame: Frames, padding: tuple[int, int, int, int]) -> torch.Tensor:
    """float32 (1, 3, h, w) from -1 to 1; what is added repeats the last row and column."""
    image = torch.from_numpy(np.ascontiguousarray(frame)).permute(2, 0, 1)[None].float() / 127.5 - 1
    return torch.nn.functional.pad(image, padding, mode="replicate")
