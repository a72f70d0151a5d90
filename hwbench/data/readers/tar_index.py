"""Where the members of a tar archive begin: read from the archive once, and kept in a small file."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hwbench.documents import read_json
from hwbench.errors import InvalidFile, WorkspaceError
from hwbench.ownership import is_own
from hwbench.user_folders import user_folder
from hwbench.workspace import write_text

# Raised whenever the index holds something else of the same archive: 2 has labels whose names end in capitals.
_FORMAT = 2
# Labels are words and numbers; JSON of a sample may hold a description.
_TEXT_ENDINGS, _MOST_TEXT_BYTES = (".cls", ".txt", ".json"), 64 * 1024


@dataclass(frozen=True, slots=True)
class TarMember:
    """A file of an archive; ``text`` is its content where its name ends like that of a label, None above 64 KiB."""

    name: str
    offset_bytes: int
    size_bytes: int
    text: str | None = None


def tar_members(archive: Path) -> tuple[TarMember, ...]:
    """The files of an archive in their order.

    The first reading goes through the archive and writes ``<archive>.index.json`` beside it, or into the cache of the
    user (``$XDG_CACHE_HOME/hwbench``) where the folder cannot be written. An index of another size or time of the
    archive is not used, nor one that somebody else than the owner of the archive could have written.

    Raises:
        InvalidFile: No tar archive, a compressed or a truncated one.
    """
    try:
        status = archive.stat()
    except OSError as error:
        raise InvalidFile(f"{archive}: {error.strerror}") from None
    stamp = {"format": _FORMAT, "size_bytes": status.st_size, "modified_ns": status.st_mtime_ns}
    beside = archive.with_name(f"{archive.name}.index.json")
    places = [place for place in (beside, *_cache_files(archive)) if _is_believed(place, status.st_uid)]
    for place in places:
        members = _stored(place, stamp)
        if members is not None:
            return members
    members = _scan(archive)
    rows = [[one.name, one.offset_bytes, one.size_bytes, one.text] for one in members]
    for place in places:
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            write_text(place, json.dumps({**stamp, "members": rows}), 0o644)
        except (OSError, WorkspaceError):
            continue
        break
    return members


def _cache_files(archive: Path) -> list[Path]:
    """The index in the cache of the user; none for a user without a home."""
    try:
        cache = user_folder("XDG_CACHE_HOME", ".cache")
    except RuntimeError:
        return []
    name = f"{hashlib.sha256(os.fsencode(archive.resolve())).hexdigest()[:32]}.json"
    return [cache / "archives" / name]


def _is_believed(place: Path, owner: int) -> bool:
    """Whether nobody but us, or the owner of the archive, can have written an index; one that is not there is ours."""
    if is_own(place):
        return True
    status = place.stat()
    return status.st_uid == owner and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _stored(place: Path, stamp: dict[str, int]) -> tuple[TarMember, ...] | None:
    """The members as an index has them; None where it is missing, of another archive, or not whole."""
    try:
        value: dict[str, Any] = read_json(place.read_bytes())
        if {name: value[name] for name in stamp} != stamp:
            return None
        members = tuple(TarMember(*row) for row in value["members"])
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return members if all(_whole(one, stamp["size_bytes"]) for one in members) else None


def _whole(member: TarMember, archive_bytes: int) -> bool:
    """Whether a member of an index lies within its archive."""
    numbers = member.offset_bytes, member.size_bytes
    kinds = isinstance(member.name, str) and member.name.isprintable() and isinstance(member.text, str | None)
    return kinds and all(type(one) is int and one >= 0 for one in numbers) and sum(numbers) <= archive_bytes


def _scan(archive: Path) -> tuple[TarMember, ...]:
    members: list[TarMember] = []
    try:
        with tarfile.open(archive, "r:") as tar:
            for member in tar:
                if not member.isreg() or member.issparse():
                    continue
                text = None
                if member.name.lower().endswith(_TEXT_ENDINGS) and member.size <= _MOST_TEXT_BYTES:
                    file = tar.extractfile(member)
                    text = file.read().decode("utf-8") if file else None
                members.append(TarMember(_name(archive, member.name), member.offset_data, member.size, text))
    except UnicodeDecodeError:
        raise InvalidFile(f"{archive}!{member.name}: expected text in UTF-8") from None
    except (tarfile.TarError, OSError, EOFError, ValueError) as error:
        cause = " ".join(str(error).split())[:200]
        raise InvalidFile(f"{archive}: expected a tar archive, whole and not compressed ({cause})") from None
    return tuple(members)


def _name(archive: Path, name: str) -> str:
    """The name of a member, fit to be written and shown."""
    if not name.isprintable():
        raise InvalidFile(f"{archive}: the name {name!r} of a member has characters that cannot be shown")
    return name
