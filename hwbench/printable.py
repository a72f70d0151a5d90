"""Text from elsewhere made fit to be shown: nothing in it moves a cursor, colours a terminal or begins a line."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

# Control and format characters (of them those that reverse the direction of reading), halves of surrogate pairs, and
# the separators that some programs take for line ends.
_UNFIT = {"Cc", "Cf", "Cs", "Zl", "Zp"}
# What Python makes of the bytes of names of files that are not UTF-8.
_FIRST_BYTE, _LAST_BYTE = 0xDC80, 0xDCFF
# Names of parameters of a URL that are secret, of libpq: password, sslpassword, oauth_client_secret, scram_client_key,
# scram_server_key.
SECRET_NAME = re.compile("password|passphrase|secret|token|^scram_", re.IGNORECASE)
# What begins so is a formula to spreadsheets, also in full width; ``'`` in front makes it text.
_FORMULA = re.compile(r"'*[=+\-@\uff1d\uff0b\uff0d\uff20]")


def printable(text: str, limit: int | None = None) -> str:
    """One line: white space becomes single spaces; what is longer than ``limit`` characters ends with an ellipsis."""
    fit = text if text.isprintable() else "".join(c if c.isspace() else _fit(c) for c in text)
    line = re.sub(r"\s+", " ", fit).strip()
    return line if limit is None or len(line) <= limit else line[: limit - 1] + "…"


def printable_lines(text: str) -> str:
    """The same text with its line ends and tabs, without anything else that is no character."""
    return text if text.isprintable() else "".join(c if c in "\n\t" else _fit(c) for c in text)


def without_secrets(word: str) -> str:
    """A word of a command line; of a URL in it the password and the secret parameters are ``***``."""
    if "://" not in word:
        return word
    # To the last @: a password may hold one.
    word = re.sub("://([^:/@]*):.*@", r"://\1:***@", word, flags=re.DOTALL)
    return re.sub("([?&]([^=&]+)=)[^&]*", lambda at: f"{at[1]}***" if SECRET_NAME.search(at[2]) else at[0], word)


def is_formula(cell: str) -> bool:
    """Whether a cell of a table is a formula to spreadsheets, or one behind apostrophes."""
    return _FORMULA.match(cell) is not None


def as_cell(text: str) -> str:
    """A text as the cell of a table that is no formula to spreadsheets; ``from_cell`` gives it back."""
    return f"'{text}" if is_formula(text) else text


def from_cell(cell: str) -> str:
    """The text of a cell that ``as_cell`` made."""
    return cell[1:] if cell.startswith("'") and is_formula(cell) else cell


def is_utf8(text: str) -> bool:
    """Whether a text can be written as UTF-8: a name of a file whose bytes are none has halves of surrogate pairs."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def shown(value: object, limit: int = 200) -> str:
    """A value for an error message: its ``repr``, cut where it is longer than ``limit``."""
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def beginning(names: Sequence[str], most: int = 5) -> str:
    """Names with commas; of more than ``most`` the first, and an ellipsis."""
    return ", ".join([*names[:most], *(["..."] if len(names) > most else [])])


def enumeration(words: Sequence[str]) -> str:
    """Words as a sentence lists them: ``a, b and c``."""
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def counted(count: int, noun: str) -> str:
    """A number of things, for people: ``1 epoch``, ``2 epochs``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _fit(character: str) -> str:
    r"""A character as it is shown: nothing of what is unfit, and ``\xe9`` of a byte of a name that is not UTF-8."""
    if _FIRST_BYTE <= ord(character) <= _LAST_BYTE:
        return f"\\x{ord(character) & 0xFF:02x}"
    return "" if unicodedata.category(character) in _UNFIT else character
