"""Groups that the names of videos tell: UCF101, UCF50 and UCF11 cut several clips out of one recording.

``v_YoYo_g01_c02.avi`` is clip 2 of group 1 (UCF101, UCF50), ``v_shooting_01/v_shooting_01_02.avi`` clip 2 of group 1
(UCF11). Soomro, Zamir, Shah: UCF101, CRCV-TR-12-01, section 3, keep the clips of a group on one side.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePath

from hwbench.data.archives import ArchiveMember
from hwbench.data.readers import ListedVideo

_CLIP = re.compile(r"[^/]*/(v_[^/]+_g[0-9]+)_c[0-9]+|(v_[^/]+_[0-9]+)/\2_[0-9]+")


def path_of(video: ListedVideo) -> PurePath:
    """The path of a video: in its archive where it is a member of one."""
    return PurePath(video.source.member) if isinstance(video.source, ArchiveMember) else video.path


def with_named_groups(videos: Sequence[ListedVideo]) -> tuple[ListedVideo, ...]:
    """The videos with the groups that their names tell; none where a name tells no group, or a reader has told some."""
    if any(video.group for video in videos):
        return ()
    grouped = []
    for video in videos:
        path = path_of(video)
        clip = _CLIP.fullmatch(f"{path.parent.name}/{path.stem}")
        if clip is None:
            return ()
        grouped.append(replace(video, group=clip[1] or clip[2]))
    return tuple(grouped)
