"""Who besides us can change a file or folder. What is run or believed must be ours, as git and ssh ask it.

Ours is what belongs to this user, to root, or to whoever owns the code that is running: they decide already what this
process does. Under ``sudo`` it is also what belongs to the user who called it. Nobody else may be able to write it:
neither everybody nor a group with other members.
"""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import shlex
import stat
from functools import cache
from pathlib import Path

from hwbench.errors import WorkspaceError

# Folders that count as ours, with all in them, in the form of PATH.
SAFE_DIRECTORY = "HWBENCH_SAFE_DIRECTORY"

_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_PACKAGE = Path(__file__).resolve().parent
# The folder that the code lies in: the top of a checkout, or where packages are installed.
_CODE = _PACKAGE.parent


def check_own(path: Path, holds: str, *, root: Path | None = None) -> None:
    """Refuses a file or folder that somebody else can change; one that is not there is nobody's.

    Args:
        path: A symbolic link stands for what it leads to.
        holds: What it holds, to be told: what is done with it, and why it matters.
        root: The folder to trust instead, in the message, where what ``path`` leads to lies in it; default: ``path``.

    Raises:
        WorkspaceError: It belongs to somebody else, or others can write it; says what to type next.
    """
    stranger = who_else(path)
    if stranger and not _trusted(path):
        raise _refused(path, stranger, holds, _to_trust(path, root))


def is_own(path: Path) -> bool:
    """Nobody else can change it, or somebody said that it does; see ``check_own``."""
    return not who_else(path) or _trusted(path)


def check_above(path: Path, holds: str) -> None:
    """Refuses a folder that somebody can exchange for another one, by its parents.

    A parent that everybody can write does where it is sticky, as ``/tmp`` is: there only the owner can rename a folder.

    Raises:
        WorkspaceError: As ``check_own``.
    """
    if _trusted(path):
        return
    for parent in path.parents:
        stranger = _who_else(parent, above=True)
        if stranger:
            raise _refused(parent, stranger, holds, path)


def who_else(path: Path) -> str:
    """Who besides us can change it, as a part of a sentence about it; empty where nobody can."""
    return _who_else(path, above=False)


def make_closed_folder(path: Path) -> None:
    """Makes a folder, and those above it that are missing, which only we can write, whatever the umask is.

    Folders that are there stay as they are.

    Raises:
        OSError: As ``Path.mkdir``.
    """
    if not path.is_dir():
        make_closed_folder(path.parent)
        path.mkdir(mode=0o755, exist_ok=True)


def make_own_folder(path: Path, holds: str) -> None:
    """Makes a folder as ``make_closed_folder`` does, or checks the one that is there.

    Raises:
        WorkspaceError: As ``check_own``.
        OSError: It cannot be made.
    """
    make_closed_folder(path)
    check_own(path, holds)


def keep_to_us(path: Path) -> None:
    """Takes the right to write a file or folder of ours from all others; a umask may have left it to them.

    Raises:
        OSError: It is not there, or not ours.
    """
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & _OTHERS:
        path.chmod(mode & ~_OTHERS)


def _who_else(path: Path, *, above: bool) -> str:
    try:
        status = path.stat()
    except OSError:  # what is not there, or cannot be reached, is not read either
        return ""
    if status.st_uid not in _ours() and not (above and _unmapped(status.st_uid)):
        return f"belongs to {_user(status.st_uid)}"
    if above and status.st_mode & stat.S_ISVTX:
        return ""
    if status.st_mode & stat.S_IWOTH:
        return "can be written by everybody"
    if status.st_mode & stat.S_IWGRP and not _private(status.st_gid, status.st_uid):
        return f"can be written by the group {_group(status.st_gid)}"
    return ""


def _refused(path: Path, stranger: str, holds: str, root: Path) -> WorkspaceError:
    mend = "" if stranger.startswith("belongs") else f"take that away: chmod go-w {_typed(path)}; or, "
    safe = os.pathsep.join(filter(None, (os.environ.get(SAFE_DIRECTORY), str(root))))
    return WorkspaceError(
        f"{path} {stranger}, and {holds}: expected what only you can change; {mend}if you trust all who can, "
        f"tell so: export {SAFE_DIRECTORY}={shlex.quote(safe)}"
    )


def _to_trust(path: Path, root: Path | None) -> Path:
    """The folder that ``_trusted`` goes by once it is named; of a file outside of ``root`` its own."""
    real = path.resolve()
    if root is None:
        return path
    if real.is_relative_to(root.resolve()):
        return root
    return real if real.is_dir() else real.parent


def _typed(path: Path) -> str:
    """As a word of a shell."""
    return shlex.quote(str(path))


def _trusted(path: Path) -> bool:
    """Somebody said so; or it lies with code that runs anyway and that strangers can change as well."""
    resolved = path.resolve()
    said = [Path(part).resolve() for part in os.environ.get(SAFE_DIRECTORY, "").split(os.pathsep) if part]
    if any(resolved.is_relative_to(folder) for folder in said):
        return True
    return resolved.is_relative_to(_CODE) and bool(_code_strangers())


@cache
def _code_strangers() -> str:
    return who_else(_PACKAGE)


def _ours() -> set[int]:
    ours = {os.geteuid(), 0}
    with contextlib.suppress(OSError):  # in an archive
        ours.add(_PACKAGE.stat().st_uid)
    called_by = os.environ.get("SUDO_UID", "")
    if os.geteuid() == 0 and called_by.isascii() and called_by.isdecimal():
        ours.add(int(called_by))
    return ours


def _unmapped(uid: int) -> bool:
    """Of a user that this user namespace does not know, as all of the host's are in a container without root."""
    try:
        return uid == int(Path("/proc/sys/kernel/overflowuid").read_text())
    except (OSError, ValueError):
        return False


def _private(gid: int, uid: int) -> bool:
    """A group with one member, as many distributions make for each user: it has the user's name and number."""
    try:
        group = grp.getgrgid(gid)
    except KeyError:  # nobody is listed in it
        return gid == uid
    return group.gr_name == _user(uid) and set(group.gr_mem) <= {group.gr_name}


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def _group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return f"{gid}"
