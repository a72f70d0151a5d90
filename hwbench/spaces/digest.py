"""What tells a space from the one that it was before its file was edited."""

from __future__ import annotations

import hashlib

from hwbench.spaces.protocols import SearchedSpace


def choices_digest(space: SearchedSpace) -> str:
    """Changes when what may be chosen in a space changes, or its stem, head or strides; of a union one for each space,
    with commas.
    """
    return ",".join(hashlib.sha256(repr(one).encode()).hexdigest()[:16] for one in space.members)
