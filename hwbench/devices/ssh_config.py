"""``~/.ssh/config``: taken apart as OpenSSH does it, looked up by paramiko.

paramiko knows no comment behind a value, no quotes around one of several words, and no Include. So each line is read
here, by the rules of ``argv_split`` of OpenSSH, and written down as paramiko takes it; files that are included stand in
their places, below the conditions of the block that includes them.
"""

from __future__ import annotations

import contextlib
import glob
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from hwbench.errors import InvalidFile
from hwbench.user_folders import with_home

if TYPE_CHECKING:
    import paramiko

# A configuration that includes itself has no end; OpenSSH has the same limit.
MOST_INCLUDES = 16
# Keyword and value: blanks, or one "=" with blanks around it, stand between them.
_LINE = re.compile(r'"?(\w+)"?(?:[ \t]*=[ \t]*|[ \t]+)(.*)', re.DOTALL)
# Values that are several words; they are read again by ``shlex.split``.
_LISTS = ("userknownhostsfile", "globalknownhostsfile")
# Conditions of Match: those without a word behind them, and those with one that paramiko knows.
_BARE = ("all", "canonical", "final")
_CONDITIONS = ("host", "originalhost", "user", "localuser", "exec")


class SshConfig:
    """A configuration of ssh, or nothing where there is none.

    Args:
        path: The file.

    Raises:
        InvalidFile: It cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._text = ""
        with self._reading():
            self._text = "\n".join(_lines(path, MOST_INCLUDES, ()))
            self._parsed({})

    def lookup(self, name: str, own: Mapping[str, str]) -> dict[str, Any]:
        """What it says about a host, by keywords in small letters; ``identityfile`` is a list.

        Files of known hosts are words for ``shlex.split``. The tokens of ``proxycommand`` and of files are not filled
        in.

        Args:
            name: The host's name or alias.
            own: Keywords and values that count before those of the file, wherever it refers to them.
        """
        with self._reading():
            values = dict(self._parsed(own).lookup(name))
        # As for ssh, what comes first of the two counts, also a command "none"; but not a jump "none".
        ways = [keyword for keyword in values if keyword in ("proxycommand", "proxyjump")]
        if len(ways) == 2 and (ways[0] == "proxycommand" or values["proxyjump"].lower() != "none"):
            del values[ways[1]]
        return values

    def _parsed(self, own: Mapping[str, str]) -> paramiko.SSHConfig:
        import paramiko

        class Config(paramiko.SSHConfig):  # type: ignore[misc]
            # paramiko knows neither %n nor %%, and of a few keywords only.
            TOKENS_BY_CONFIG_KEY: ClassVar = {
                **paramiko.SSHConfig.TOKENS_BY_CONFIG_KEY,
                "identityfile": [],
                "proxycommand": [],
            }

        first = "".join(f"{keyword} {value}\n" for keyword, value in own.items())
        return Config.from_text(f"{first}{self._text}")

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        import paramiko

        try:
            yield
        except (OSError, UnicodeDecodeError, paramiko.ConfigParseError) as error:
            raise InvalidFile(f"{self._path}: expected a configuration of ssh: {error}") from error


def _lines(path: Path, left: int, outer: Sequence[str]) -> Iterator[str]:
    """The lines of a configuration for paramiko, with those that it includes in their places.

    Args:
        path: The file.
        left: How many files may still include one another.
        outer: The conditions of Match that hold for all of the file; they are in force where it begins.
    """
    if not path.exists():
        return
    block, has_command = list(outer), False
    for line in path.read_text().split("\n"):
        # paramiko says what is wrong with a line that is none.
        match = _LINE.fullmatch(text := line.strip(" \t\r\f"))
        keyword, value = (match[1].lower(), match[2]) if match else ("", "")
        if keyword in ("host", "match"):
            block, has_command = [*outer, *_conditions(keyword, value, text)], False
            yield _header(block)
        elif keyword == "include":
            for pattern in _words(value, text) if left else ():
                base = with_home(pattern)
                full = base if base.is_absolute() else path.home() / ".ssh" / base
                for found in sorted(glob.glob(str(full))):
                    yield from _lines(Path(found), left - 1, block)
                    yield _header(block)
        elif keyword == "proxycommand":
            # The first of a block counts. Of its words the shell makes what it likes, also of "#".
            if not has_command:
                yield _setting(keyword, value.lstrip(" \t="))
            has_command = True
        elif match:
            words = _words(value, text)
            yield _setting(keyword, shlex.join(words) if keyword in _LISTS else " ".join(words))
        else:
            yield text


def _header(conditions: Sequence[str]) -> str:
    return f"Match {shlex.join(conditions)}" if conditions else "Host *"


def _setting(keyword: str, value: str) -> str:
    # paramiko takes quotes around the whole away, once.
    return f'{keyword} "{value}"' if value.startswith('"') and value.endswith('"') else f"{keyword} {value}"


def _conditions(keyword: str, value: str, line: str) -> list[str]:
    """The words of a line Host or Match, as words of Match that can stand behind those of others; [] holds always."""
    if keyword == "host":
        patterns = _words(value, line)
        return [] if patterns == ["*"] else ["originalhost", ",".join(patterns) or _no_value(line)]
    conditions: list[str] = []
    words = _words(value, line, quotes='"')
    while words:
        word, equals, argument = words.pop(0).partition("=")
        name = word.lower().lstrip("!")
        if name in _BARE:
            # paramiko takes "all" beside no other.
            conditions += [word.lower()] if name != "all" else ["!originalhost", "*"] if word.startswith("!") else []
            continue
        if not argument:
            argument = words.pop(0) if words else _no_value(line)
            if not equals and argument.startswith("="):
                argument = argument[1:] or (words.pop(0) if words else _no_value(line))
        if name in _CONDITIONS:
            conditions += [word.lower(), argument]
        elif not word.startswith("!"):  # paramiko takes for true what it does not know
            conditions += ["!originalhost", "*"]
    return conditions


def _no_value(line: str) -> str:
    import paramiko

    raise paramiko.ConfigParseError(f"a value is missing in the line {line}")


def _words(text: str, line: str, quotes: str = "\"'") -> list[str]:
    """The words of a value up to a comment, as OpenSSH tells them apart.

    Args:
        text: The value.
        line: The line that it is of, for messages.
        quotes: What may stand around blanks; with both kinds of them a backslash keeps what is behind it.

    Raises:
        ConfigParseError: Quotes without an end.
    """
    import paramiko

    words: list[str] = []
    quote, inside, rest = "", False, iter(text)
    for character in rest:
        if character == "#" and not inside:
            break
        if character in " \t" and not quote:
            inside = False
            continue
        if not inside:
            words.append("")
            inside = True
        if character == "\\" and len(quotes) > 1:
            behind = next(rest, "")
            words[-1] += behind if behind and (behind in "\"'\\" or (behind == " " and not quote)) else "\\" + behind
        elif not quote and character in quotes:
            quote = character
        elif character == quote:
            quote = ""
        else:
            words[-1] += character
    if quote:
        raise paramiko.ConfigParseError(f"quotes without an end in the line {line}")
    return words
