"""Which files of a workspace docs/reference/files.md tells of."""

import re
from collections.abc import Iterator
from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "files.md"
# What is in them is made again at any time, and the page tells of no file there by itself.
WHOLE = (".hwbench/cache", ".hwbench/data")


def undocumented(root: Path) -> list[str]:
    """The files that hwbench wrote in a workspace and that no row of the page names, relative to the workspace.

    A row names a file by its path, with words in capitals for what differs. A folder is named with what is in it, but
    for hidden files: a person who finds one asks what it is.
    """
    rows = list(_rows())
    return sorted(name for name in _written(root) if not any(row.fullmatch(name) for row in rows))


def _written(root: Path) -> Iterator[str]:
    for top in (".hwbench", "profiles", "runs"):
        for path in (root / top).rglob("*"):
            name = path.relative_to(root).as_posix()
            if path.is_file() and not any(name.startswith(f"{folder}/") for folder in WHOLE):
                yield name


def _rows() -> Iterator[re.Pattern[str]]:
    table = PAGE.read_text(encoding="utf-8").partition("| file | holds |\n")[2].partition("\n\n")[0]
    for row in table.splitlines()[1:]:
        for path in re.findall("`([^`]+)`", row.split("|")[1]):
            words = re.sub(r"[A-Z]{2,}|\*", lambda word: "\0", path.rstrip("/"))
            pattern = re.escape(words).replace("\0", "[^/]+")
            yield re.compile(rf"{pattern}(/(?!\.)[^/]+)*")
