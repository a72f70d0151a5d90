"""Published weights by name: the file that a card names is fetched once, checked, and kept in the workspace.

A fetch that breaks off goes on where it stopped, also after ``kill -9``; on a file system without locks the next fetch
begins anew. A file is believed by its SHA-256: that of the card, or where the card has none that of the first fetch,
which is written beside the file. ``HWBENCH_ZOO_MIRROR`` names another place that has the files: a folder or an address,
in front of the path that the card's address has.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import http.client
import os
import re
import shutil
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from hwbench import __version__
from hwbench.durable import make_folder, sync_folder
from hwbench.errors import HwbenchError, InvalidFile, InvalidValue
from hwbench.locks import try_flock
from hwbench.ownership import check_own
from hwbench.printable import printable, shown, without_secrets
from hwbench.spaces.cards import Weights, load_card
from hwbench.user_folders import with_home
from hwbench.workspace import Workspace, temporary_beside, write_text, writing

MIRROR = "HWBENCH_ZOO_MIRROR"
# The largest published file is 0.5 GB; what claims to be ten times that is not one of them.
MAX_BYTES = 5 * 10**9
# A connection that brings no byte for so long is given up.
STALL_S = 30.0
# A fetch writes a piece at least every ``STALL_S``: what nobody wrote to for a day is of none, however clocks differ.
_STALE_S = 24 * 3600
_PIECE_BYTES = 1 << 20
_TRIES = 3
# Pages that ask who one is, and what Git keeps in the place of a large file: their first bytes, in small letters.
_BEGIN_BYTES = 512
_OTHERS = {
    b"<!doctype html": "a page of HTML",
    b"<html": "a page of HTML",
    b"<?xml": "an answer in XML",
    b"version https://git-lfs": "the pointer of Git LFS in its place",
}

# What the folder holds, for the message that somebody else can change it.
_HOLDS = "it holds weights, and the digest that vouches for them"

Progress = Callable[[int, int | None], None]


@dataclass(frozen=True)
class FetchedWeights:
    """A file of published weights in the workspace.

    Attributes:
        path: The file.
        sha256: Its digest.
        bytes: Its size.
        source: Where it came from.
        pinned: The card names the digest; else it is that of the first fetch.
        fetched: It was fetched now; else it was there.
        first_use: Its digest is believed from now on, as the card names none, and none was kept; also of a file that a
            killed fetch brought.
    """

    path: Path
    sha256: str
    bytes: int
    source: str
    pinned: bool
    fetched: bool
    first_use: bool


def weights_of(workspace: Workspace, name: str) -> Weights:
    """Where the published weights of a card lie.

    Raises:
        UnknownName: No such card.
        InvalidFile: The card does not validate.
        InvalidValue: No weights of it were published.
    """
    card = load_card(workspace, name)
    if card.weights is None:
        others = [other for other in workspace.names("zoo") if other != name and _has_weights(workspace, other)]
        raise InvalidValue(f"zoo:{name} has no published weights; these have: {', '.join(others)}")
    return card.weights


def _has_weights(workspace: Workspace, name: str) -> bool:
    """Whether a card can be read, and names published weights."""
    try:
        return load_card(workspace, name).weights is not None
    except HwbenchError:
        return False


def stored_weights(workspace: Workspace, name: str) -> Path:
    """Where the file of a card's weights is kept in the workspace; it need not be there."""
    address = urllib.parse.urlsplit(weights_of(workspace, name).url)
    return workspace.state / "weights" / name / Path(urllib.parse.unquote(address.path)).name


def fetch_weights(workspace: Workspace, name: str, progress: Progress | None = None) -> FetchedWeights:
    """The published weights of a card, fetched where they are not in the workspace.

    Args:
        workspace: Has the card, and keeps the file.
        name: Of the card.
        progress: Called with bytes there and bytes in all (None: not known).

    Raises:
        UnknownName: No such card.
        InvalidValue: No weights of it were published, or HWBENCH_ZOO_MIRROR is neither a folder nor an address
            without a user.
        InvalidFile: What came, or what is kept, has another digest.
        HwbenchError: The place cannot be reached, has no such file, or leads from https to what is not.
        WorkspaceError: No rights or no room, or somebody else can change what is kept.
    """
    weights, path = weights_of(workspace, name), stored_weights(workspace, name)
    source = mirrored(weights.url)
    with writing(path):
        for folder in (path.parent.parent, path.parent):
            make_folder(folder, 0o755)
            check_own(folder, _HOLDS, root=workspace.root)
    with _alone(path) as part:
        for file in (path, _digest_beside(path), part):
            check_own(file, _HOLDS, root=workspace.root)
        fetched = not path.is_file()
        if fetched:
            _fetch(source, path, part, weights, progress)
        sha256, first_use = _checked(path, weights)
        return FetchedWeights(path, sha256, path.stat().st_size, source, bool(weights.sha256), fetched, first_use)


def mirrored(url: str) -> str:
    """The address or file that is read in the place of an address; the address itself without ``HWBENCH_ZOO_MIRROR``.

    Raises:
        InvalidValue: The mirror is neither a folder nor an http address, or one with a user, whose password would be
            shown wherever the address is.
    """
    mirror = os.environ.get(MIRROR, "").strip().rstrip("/")
    if not mirror:
        return url
    place = urllib.parse.urlsplit(url).path.lstrip("/")
    if re.match(r"https?://[^/?#]*@", mirror):
        raise InvalidValue(
            f"{MIRROR}: expected an address without a user and a password, which hwbench does not send; fetch the "
            f"files with a program that does, and name their folder: export {MIRROR}=DIR"
        )
    if re.match(r"https?://", mirror):
        return f"{mirror}/{place}"
    folder = with_home(mirror)
    if not folder.is_dir():
        got = shown(without_secrets(mirror))
        raise InvalidValue(f"{MIRROR}: expected a folder or an address with http:// or https://, got {got}")
    return str(folder / urllib.parse.unquote(place))


def _fetch(source: str, path: Path, part: Path, weights: Weights, progress: Progress | None) -> None:
    """Brings the file, going on with what an earlier fetch left; it has its name when it is whole and checked."""
    if not re.match(r"https?://", source):
        _copy(Path(source), part, weights.url)
    else:
        for attempt in range(1, _TRIES + 1):
            try:
                _download(source, part, progress)
                break
            except _BrokenOff as error:
                if attempt == _TRIES:
                    again = "goes on there" if part == _part(path) else "begins anew"
                    raise HwbenchError(
                        f"{source}: {error}, after {part.stat().st_size if part.exists() else 0} bytes; the same "
                        f"command {again}"
                    ) from error
    if weights.sha256 and _sha256(part) != weights.sha256:
        got = _sha256(part)
        _remove(part)
        raise InvalidFile(f"{source}: expected SHA-256 {weights.sha256}, got {got}; nothing was kept")
    if other := _other_than_weights(part):
        _remove(part)
        raise InvalidFile(f"{source}: expected a file of weights, got {other}; nothing was kept")
    with writing(path):
        with part.open("rb") as file:
            os.fsync(file.fileno())
        part.replace(path)
        sync_folder(path.parent)
    _remove(_tag(part))


def _other_than_weights(path: Path) -> str:
    """What places give in the stead of a file, with a status that says it is the file; empty: none of these."""
    with path.open("rb") as file:
        begin = file.read(_BEGIN_BYTES).lstrip().lower()
    if not begin:
        return "an empty file"
    return next((what for start, what in _OTHERS.items() if begin.startswith(start)), "")


class _BrokenOff(Exception):
    """The connection ended before the file did."""


class _KeepsHttps(urllib.request.HTTPRedirectHandler):
    """Follows redirects, but none from https to where anybody on the way can exchange what comes."""

    def redirect_request(self, req: urllib.request.Request, fp: IO[bytes], *answer: Any) -> Any:
        target = str(answer[-1])
        if req.type == "https" and urllib.parse.urlsplit(target).scheme != "https":
            fp.close()
            place = printable(without_secrets(target), 200)
            raise HwbenchError(f"{req.full_url}: redirects to {place}, which is not https; {_way_out(req.full_url)}")
        return super().redirect_request(req, fp, *answer)


def _download(url: str, part: Path, progress: Progress | None) -> None:
    """One request, for what is missing of the file."""
    there, tag = _begun(part)
    headers = {"User-Agent": f"hwbench/{__version__}"}
    if there:
        headers |= {"Range": f"bytes={there}-", "If-Range": tag}
    try:
        opener = urllib.request.build_opener(_KeepsHttps)
        with opener.open(urllib.request.Request(url, headers=headers), timeout=STALL_S) as answer:
            going_on = answer.status == http.HTTPStatus.PARTIAL_CONTENT
            there = there if going_on else 0
            length = answer.headers.get("Content-Length", "")
            total = there + int(length) if length.isascii() and length.isdigit() else None
            if total is not None and total > MAX_BYTES:
                raise InvalidFile(f"{url}: {total} bytes announced; expected weights of at most {MAX_BYTES}")
            with writing(part):
                part.touch(0o644)
                write_text(_tag(part), answer.headers.get("ETag") or answer.headers.get("Last-Modified") or "")
                with part.open("ab" if going_on else "wb") as file:
                    there = _pour(answer, file, url, there, total, progress)
    except urllib.error.HTTPError as error:
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:  # what is there is longer than the file
            _remove(part)
            raise _BrokenOff("the file there has changed") from error
        raise HwbenchError(f"{url}: the server answers {error.code} {error.reason}; {_way_out(url)}") from error
    except (urllib.error.URLError, TimeoutError, http.client.HTTPException, ConnectionError) as error:
        if part.exists() and part.stat().st_size > there:
            raise _BrokenOff(_reason(error)) from error
        host = urllib.parse.urlsplit(url).netloc
        raise HwbenchError(f"cannot reach {host}: {_reason(error)}; {_way_out(url)}") from None
    if total is not None and there < total:
        raise _BrokenOff(f"the connection ended, {total} bytes were announced")


def _pour(answer: Any, file: IO[bytes], url: str, there: int, total: int | None, progress: Progress | None) -> int:
    """Writes what comes; the bytes that are there then."""
    while True:
        try:
            piece = answer.read(_PIECE_BYTES)
        except (TimeoutError, http.client.HTTPException, ConnectionError) as error:
            partial = getattr(error, "partial", b"")
            file.write(partial)
            raise _BrokenOff(_reason(error)) from error
        if not piece:
            return there
        there += len(piece)
        if there > MAX_BYTES:
            raise InvalidFile(f"{url}: more than {MAX_BYTES} bytes came; expected weights")
        file.write(piece)
        if progress is not None:
            progress(there, total)


def _begun(part: Path) -> tuple[int, str]:
    """Bytes of a fetch that broke off, and what the server called that version; none where it did not say."""
    try:
        tag = _tag(part).read_text(encoding="utf-8", errors="replace").strip()
        # A weak tag does not promise the same bytes.
        return (part.stat().st_size, tag) if tag and not tag.startswith("W/") and tag.isprintable() else (0, "")
    except OSError:
        return 0, ""


def _part(path: Path) -> Path:
    return path.with_name(f"{path.name}.part")


def _tag(part: Path) -> Path:
    return part.with_name(f"{part.name}.tag")


def _copy(source: Path, part: Path, url: str) -> None:
    if not source.is_file():
        raise HwbenchError(f"{source}: no such file in {MIRROR}; put {url} there")
    with writing(part):
        part.touch(0o644)
        shutil.copyfile(source, part)


def _checked(path: Path, weights: Weights) -> tuple[str, bool]:
    """The digest of a kept file, which is the one it should have, and whether it is believed on first use."""
    sha256, beside = _sha256(path), _digest_beside(path)
    expected = weights.sha256
    if not expected:
        with contextlib.suppress(OSError):
            expected = beside.read_text(encoding="ascii", errors="replace").split()[0] if beside.stat().st_size else ""
    if expected and sha256 != expected:
        raise InvalidFile(
            f"{path}: expected SHA-256 {expected}, got {sha256}; damaged or replaced: remove the folder {path.parent} "
            "to fetch the file again"
        )
    if not expected:
        write_text(beside, f"{sha256}  {path.name}\n", 0o644)
    return sha256, not expected


def _digest_beside(path: Path) -> Path:
    """The file with the digest of the first fetch."""
    return path.with_name(f"{path.name}.sha256")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)


def _reason(error: BaseException) -> str:
    inner = getattr(error, "reason", error)
    return " ".join(str(inner).split()) or type(error).__name__


def _way_out(url: str) -> str:
    return (
        f"fetch {url} elsewhere and give it to hwbench export or train with --weights FILE, or name a folder or "
        f"address that has the files: export {MIRROR}=DIR"
    )


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[Path]:
    """Waits for another process or thread that fetches the same file; gives the name of the part that this one writes.

    Without locks nobody is waited for: the part is of this process alone, and goes at the end, or where the process is
    killed with a fetch of the same card a day later.
    """
    with writing(path):
        lock = path.with_name(".lock").open("w")
    with lock:
        alone = try_flock(lock)
        if alone is False:
            with writing(path):
                fcntl.flock(lock, fcntl.LOCK_EX)
        _sweep(path.parent)
        part = _part(path) if alone is not None else temporary_beside(path)
        try:
            yield part
        finally:
            if alone is None:
                _remove(part)
                _remove(_tag(part))


def _sweep(folder: Path) -> None:
    """Removes parts, and what tells of them, that killed fetches of a card left behind."""
    for leftover in [*folder.glob(".*.tmp"), *folder.glob(".*.tmp.tag")]:
        with contextlib.suppress(OSError):  # another fetch is faster
            if time.time() - leftover.stat().st_mtime > _STALE_S:
                leftover.unlink()
