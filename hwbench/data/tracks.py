"""What is read beside the pictures of a clip, with a mask of where there is anything, in samples and in batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Track:
    """One modality of N clips.

    Attributes:
        values: float32 (N, C, L) of L moments, or the codes of optical flow, uint8 (N, T, 2, h, w), before they are
            normalised: then float32 (N, 2, T, h, w), shares of their range from -1 to 1.
        valid: bool (N, L): moments of which there is anything; the others are 0.
    """

    values: torch.Tensor
    valid: torch.Tensor

    @property
    def present(self) -> torch.Tensor:
        """bool (N,): clips of which there is anything."""
        return self.valid.any(dim=1)

    def repeated(self, count: int) -> Track:
        """One clip as ``count`` views of it."""
        return Track(self.values.expand(count, *self.values.shape[1:]), self.valid.expand(count, -1))

    def pin_memory(self) -> Track:
        """Page-locked copies, for the way to a GPU."""
        return Track(self.values.pin_memory(), self.valid.pin_memory())

    def normalised(self, device: torch.device | str = "cpu") -> Track:
        """As networks take it, on ``device``."""
        values, valid = (part.to(device, non_blocking=True) for part in (self.values, self.valid))
        if values.dtype == torch.uint8:
            values = (values.transpose(1, 2).float() / 127.5 - 1) * valid[:, None, :, None, None]
        return Track(values, valid)


Tracks = Mapping[str, Track]


def joined(samples: Sequence[Tracks]) -> dict[str, Track]:
    """The tracks of several samples, which have the same keys; shorter ones get zeros at their end."""
    return {key: _joined([sample[key] for sample in samples]) for key in (samples[0] if samples else ())}


def _joined(tracks: Sequence[Track]) -> Track:
    longest = max(track.valid.shape[1] for track in tracks)
    return Track(
        torch.cat([_filled(track.values, longest) if track.values.ndim == 3 else track.values for track in tracks]),
        torch.cat([_filled(track.valid, longest) for track in tracks]),
    )


def _filled(values: torch.Tensor, length: int) -> torch.Tensor:
    """With zeros at the end of the last axis."""
    return torch.nn.functional.pad(values, (0, length - values.shape[-1]))
