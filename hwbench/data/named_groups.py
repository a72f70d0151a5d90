"""Groups that the names of videos tell: UCF101, UCF50 and UCF11 cut several clips out of one recording.

``v_YoYo_g01_c02.avi`` is clip 2 of group 1 (UCF101, UCF50), ``v_shooting_01/v_shooting_01_02.avi`` clip 2 of group 1
(UCF11). Soomro, Zamir, Shah: UCF101, CRCV-TR-12-01, section 3, keep the clips of a group on one side.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from hwbench.data.readers import ListedVideo

_CLIP = re.compile(r"[^/]*/(v_[^/]+_g[0-9]+)_c[0-9]+|(v_[^/]+_[0-9]+)/\2_[0-9]+")


def with_named_groups(videos: Sequence[ListedVideo]) -> tuple[ListedVideo, ...]:
    """The videos with the groups that their names tell; none where a name tells no group, or a reader has told some."""
    if any(video.group for video in videos):
        return ()
    grouped = []
    for video in videos:
        clip = _CLIP.fullmatch(f"{video.path.parent.name}/{video.path.stem}")
        if clip is None:
            return ()
        grouped.append(replace(video, group=clip[1] or clip[2]))
    return tuple(grouped)
