"""Keys of the adb program: those that this computer has, and whether a signature was made with one.

https://android.googlesource.com/platform/packages/modules/adb/+/main/protocol.txt (AUTH) and
https://android.googlesource.com/platform/system/core/+/main/libcrypto_utils/android_pubkey.cpp (public keys).
"""

from __future__ import annotations

import base64
import os
import struct
import subprocess
from pathlib import Path

from hwbench.errors import MissingDependency
from hwbench.testing.lab.needs import require

VENDOR_KEYS = "ADB_VENDOR_KEYS"
"""Name of the variable that names more keys, separated by colons: files, or folders of ``*.adb_key``."""
TOKEN_BYTES = 20
# A modulus of 2048 bits; adb makes and takes no other keys.
_MODULUS_BYTES = 256
# Length of the modulus in words, a constant of Montgomery's, modulus and another such constant from the low byte up,
# exponent.
_PUBLIC = struct.Struct(f"<II{_MODULUS_BYTES}s{_MODULUS_BYTES}sI")
# In front of a SHA-1 digest in a signature (RFC 8017, section 9.2, note 1); adb takes the token for such a digest.
_SHA1 = bytes.fromhex("3021300906052b0e03021a05000414")
_LIMIT_S = 60


def make_key(path: Path) -> None:
    """Makes a private key at a path, and the public one beside it.

    Raises:
        MissingDependency: The adb program that is installed cannot.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    done = _adb("keygen", str(path))
    if done.returncode:
        raise MissingDependency(f"adb makes no key at {path}: {done.stderr.strip()[-300:]}")


def computer_keys() -> list[str]:
    """The public keys of this user's adb server, as it loads them when it starts; made where there is none.

    A server that was started with another ``HOME`` or other ``ADB_VENDOR_KEYS`` has others.
    """
    own = Path.home() / ".android" / "adbkey"
    files = [own, *_vendor_keys()]
    if not any(file.is_file() for file in files):
        make_key(own)
    return [key for file in files if file.is_file() and (key := _public_key(file))]


def verifies(key: str, token: bytes, signature: bytes) -> bool:
    """Whether a signature of a token is by the private half of a public key; false also where the key is damaged.

    Nothing here is secret, so it need not take the same time for each signature.
    """
    try:
        words, _, modulus, _, exponent = _PUBLIC.unpack(base64.b64decode(key.split()[0], validate=True))
    except (ValueError, IndexError, struct.error):
        return False
    n, s = int.from_bytes(modulus, "little"), int.from_bytes(signature, "big")
    if words * 4 != _MODULUS_BYTES or exponent < 3 or len(signature) != _MODULUS_BYTES or s >= n:
        return False
    digest = _SHA1 + token
    expected = b"\0\1" + b"\xff" * (_MODULUS_BYTES - len(digest) - 3) + b"\0" + digest
    return len(token) == TOKEN_BYTES and pow(s, exponent, n).to_bytes(_MODULUS_BYTES, "big") == expected


def _vendor_keys() -> list[Path]:
    paths = [Path(word) for word in os.environ.get(VENDOR_KEYS, "").split(":") if word]
    return [file for path in paths for file in (sorted(path.glob("*.adb_key")) if path.is_dir() else [path])]


def _public_key(path: Path) -> str:
    """Empty where the file holds no key; adb's server passes over it then, too."""
    return _adb("pubkey", str(path)).stdout.strip()


def _adb(*words: str) -> subprocess.CompletedProcess[str]:
    # Where its server is said to be does not matter here, but adb ends with an error where it cannot be there.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("ADB_", "ANDROID_ADB_"))}
    argv = [require("adb"), *words]
    return subprocess.run(argv, check=False, capture_output=True, text=True, timeout=_LIMIT_S, env=environment)
