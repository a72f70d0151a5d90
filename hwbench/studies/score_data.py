"""By what data a study scores networks: scores by two data, or by different videos of one, are no order."""

from __future__ import annotations

from optuna.study import Study

from hwbench.errors import InvalidValue
from hwbench.studies.settings import Settings
from hwbench.studies.stored_settings import SETTINGS

# By what videos networks were scored: [trials that were done before, digest], in order.
_VIDEOS = "videos"


def check_data(study: Study, settings: Settings, name: str, done: int) -> None:
    """Refuses to score further networks with data where the study keeps none.

    Args:
        study: As it is stored.
        settings: Of the search.
        name: Of the study.
        done: Trials that are done.

    Raises:
        InvalidValue: It keeps none, and data are asked for.
    """
    if settings.data and settings.goes_on_with_any_data(study.user_attrs[SETTINGS]):
        race = f"leave --trials at {done} to let its best networks race, " if done else ""
        raise InvalidValue(
            f"study {name!r} keeps no data, and further networks would be scored with "
            f"{settings.data!r}: {race}leave --data, --epochs and the shares out, or take another --study"
        )


def note_videos(study: Study, videos: str, done: int) -> int:
    """Keeps with a study by which videos networks are scored from now on; how many trials were scored by others.

    Versions of before kept none: what they scored counts as scored by these.

    Args:
        study: As it is stored.
        videos: A digest of them.
        done: Trials that are done.
    """
    begun = study.user_attrs.get(_VIDEOS, [])
    if not begun or begun[-1][1] != videos:
        begun = [*(one for one in begun if one[0] < done), [done if begun else 0, videos]]
        study.set_user_attr(_VIDEOS, begun)
    ends = [*(first for first, _ in begun[1:]), done]
    return sum(end - first for (first, digest), end in zip(begun, ends, strict=True) if digest != videos)
