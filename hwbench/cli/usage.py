"""What typer refuses of a command line, in one line as every other refusal, with what to type next."""

from __future__ import annotations

import re
from typing import Any

import typer

# UsageError, which typer does not export: an unknown option or command, a missing one, a value that is none.
USAGE: Any = typer.BadParameter.__mro__[1]
_NEAR = re.compile(r"[. ]*\(?(?:Possible options:|Did you mean|Did you mean one of:) *(.+?)[?)]*$")


def refusal(error: Any) -> str:
    """The line; empty where typer refuses nothing: a program that is typed alone gets its help."""
    if type(error).__name__ == "NoArgsIsHelpError":
        return ""
    text = " ".join(error.format_message().split())
    near = ""
    if (match := _NEAR.search(text)) is not None:
        names = [name.strip(" '") for name in match[1].split(",")]
        text, near = text[: match.start()], f"; did you mean {' or '.join(map(repr, names))}?"
    command = error.ctx.command_path if error.ctx is not None else "hwbench"
    return f"{text[:1].lower()}{text[1:].rstrip('.')}{near or ';'} see {command} --help"
