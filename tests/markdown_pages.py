"""What README.md and the pages of docs/ hold for the tests: blocks of code, commands, and why a block is not run.

* ``python``: run in order, a page in one process, in a workspace of its own. With ``title="FILE"``: written to that
  file first.
* ``toml``: needs a title. It is written there and read by the reader that the file is for.
* ``bash``: every command is parsed; an unknown program is an error.
* ``text``: what a program prints. After ``<!-- printed -->`` the page must have printed it.
* ``<!-- not run: REASON -->`` before a block: it is only compiled. The reasons are those of ``NOT_RUN``.
* ``<!-- takes long -->`` before a block: it is run in ``make test-long``.
"""

import importlib
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import typer

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
PAGES = (README, *sorted((ROOT / "docs").rglob("*.md")))

NOT_RUN = {
    "needs a phone",
    "needs a board",
    "needs data of your own",
    "needs a measured device",
    "needs an exported file",
    "a fragment of the class above",
}
# Run, but by `make test-long` alone.
LONG = "takes long"
PRINTED = "printed"
# Languages that are shown and not run here: tests/deploy runs docs/run-model.md.
SHOWN = {"text", "cpp", "kotlin", "swift"}
# Programs that stand in command blocks beside hwbench and make.
PROGRAMS = {
    "adb", "apt-get", "brew", "c++", "cd", "E=$(python", "ffmpeg", "git", "mkdir", "pkg", "python", "python3", "source",
    "ssh-copy-id", "ssh-keygen", "torchrun",
}  # fmt: skip

_FENCE = re.compile(
    r"^(?:<!-- (?P<marker>[^\n]*?) -->\n+)?```(?P<language>\w*)(?P<info>[^\n]*)\n(?P<text>.*?)^```$", re.M | re.S
)


@dataclass(frozen=True)
class Block:
    """One block of code of a page."""

    page: Path
    line: int
    language: str
    title: str | None
    marker: str
    text: str

    @property
    def reason(self) -> str | None:
        """Why it is not run, or not in every test; None: it is."""
        if self.marker == LONG:
            return LONG
        return self.marker.removeprefix("not run: ") if self.marker.startswith("not run: ") else None


def name_of(page: Path) -> str:
    """A page as tests are called."""
    return str(page.relative_to(ROOT))


@cache
def blocks(page: Path, *languages: str) -> tuple[Block, ...]:
    """The blocks of a page, in order; all of them, or those of some languages."""
    text = page.read_text(encoding="utf-8")
    made = (
        Block(
            page=page,
            line=text.count("\n", 0, found.start("text")),
            language=found["language"],
            title=(re.findall(r'title="([^"]+)"', found["info"]) or [None])[0],
            marker=found["marker"] or "",
            text=found["text"],
        )
        for found in _FENCE.finditer(text)
    )
    return tuple(block for block in made if not languages or block.language in languages)


@cache
def prose(page: Path) -> str:
    """A page without its blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)


def lines_of(block: Block) -> Iterator[list[str]]:
    """The commands of a bash block, as words; comments left out, continued lines joined."""
    for line in block.text.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;")
        lexer.whitespace_split = True
        words: list[str] = []
        for word in lexer:
            if set(word) <= set("|&;"):
                yield words
                words = []
            else:
                words.append(word)
        if words:
            yield words


def commands(page: Path) -> list[list[str]]:
    """Every hwbench command in the bash blocks of a page."""
    return [words for block in blocks(page, "bash") for words in lines_of(block) if words[0] == "hwbench"]


def mentions(page: Path) -> list[list[str]]:
    """Every hwbench command between backquotes; it may lack arguments."""
    return [shlex.split(span) for span in re.findall(r"`(hwbench [a-z][^`]*)`", prose(page))]


def parse(words: list[str]) -> None:
    """Parses a command line of hwbench.

    Raises:
        Exception: It has a wrong name, option or value, or lacks one.
    """
    importlib.import_module("hwbench.cli.commands")
    from hwbench.cli.main import app

    command, name, arguments = typer.main.get_command(app), "hwbench", words[1:]
    while hasattr(command, "commands") and arguments and not arguments[0].startswith("-"):
        name, *arguments = arguments
        assert name in command.commands, f"hwbench has no command {name}"
        command = command.commands[name]
    with command.make_context(name, [word for word in arguments if word not in ("--debug", "--help")]):
        pass


def parse_mention(words: list[str]) -> None:
    """As ``parse``; arguments may be missing."""
    try:
        parse(words)
    except typer.BadParameter as error:
        if type(error).__name__ != "MissingParameter":
            raise
