"""Videos in the rows of tables of Apache Arrow: Parquet files, and data sets of Hugging Face that were saved to disk.

Arrow files are mapped into memory: a row costs its own bytes. Of a Parquet file the whole group of rows is read in
which a row lies.
"""

from __future__ import annotations

import functools
import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from hwbench.data.decoding import VideoFile, VideoInfo
from hwbench.data.kept_facts import file_state
from hwbench.data.media import relative_name
from hwbench.errors import InvalidFile, MissingDependency, VideoError

# Open tables of one process; an Arrow file that is mapped takes no memory.
_MOST_OPEN = 64


@dataclass(frozen=True, slots=True)
class RowSource:
    """A video in a column of a table: its bytes, or ``bytes`` and ``path`` as Hugging Face stores media.

    Attributes:
        table: A file ``.parquet`` or ``.arrow``.
        column: Name of the column.
        group: Number of the group of rows (Parquet) or batch (Arrow).
        row: Number of the row in it.
    """

    table: Path
    column: str
    group: int
    row: int

    @property
    def name(self) -> str:
        return f"{self.table}!{self.column}[{self.group},{self.row}]"

    def identity(self, root: Path) -> str:
        return f"{relative_name(self.table, root)}!{self.column}[{self.group},{self.row}]"

    def media(self) -> Path | BinaryIO:
        try:
            cell = open_table(self.table).column(self.group, self.column)[self.row].as_py()
        except (InvalidFile, MissingDependency, IndexError, KeyError) as error:
            raise VideoError(f"{self.name}: {error}") from None
        content = cell.get("bytes") if isinstance(cell, Mapping) else cell
        path = cell.get("path") if isinstance(cell, Mapping) else None
        if isinstance(content, bytes):
            return io.BytesIO(content)
        if not isinstance(path, str):
            raise VideoError(f"{self.name}: expected the bytes of a video or its path, found neither")
        return self.table.parent / path

    def open(self, info: VideoInfo | None = None) -> VideoFile:
        media = self.media()
        return VideoFile(media, info) if isinstance(media, Path) else VideoFile(self.name, info, content=media)


class ArrowTable:
    """An open table: its columns by group of rows.

    Raises:
        MissingDependency: pyarrow is not installed.
        InvalidFile: Neither Parquet nor Arrow.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        arrow = _pyarrow(path)
        self._errors = (arrow.ArrowException, OSError, ValueError)
        try:
            if path.suffix == ".parquet":
                import pyarrow.parquet

                self._file = pyarrow.parquet.ParquetFile(path, memory_map=True)
                self.schema: Any = self._file.schema_arrow
                self.groups: int = self._file.num_row_groups
            else:
                self._batches = _batches(arrow, path)
                self.schema = self._batches[0].schema if self._batches else arrow.schema([])
                self.groups = len(self._batches)
        except self._errors as error:
            raise self._fault(error) from None

    def column(self, group: int, name: str) -> Any:
        """The values of a column in a group of rows."""
        if self._path.suffix != ".parquet":
            return self._batches[group].column(name)
        try:
            return self._file.read_row_group(group, columns=[name], use_threads=False).column(0)
        except self._errors as error:
            raise self._fault(error) from None

    def _fault(self, error: Exception) -> InvalidFile:
        text = " ".join(str(error).split())[:200]
        return InvalidFile(f"{self._path}: expected a table in the format of Parquet or Arrow ({text})")


def open_table(path: Path) -> ArrowTable:
    """The table of a file, open as long as this process reads few others and the file does not change."""
    return _open_table(path, file_state(path))


@functools.lru_cache(_MOST_OPEN)
def _open_table(path: Path, state: tuple[int, int] | None) -> ArrowTable:
    return ArrowTable(path)


def _pyarrow(path: Path) -> Any:
    try:
        import pyarrow
    except ImportError:
        raise MissingDependency(
            f"{path}: reading it needs pyarrow, which is not installed; "
            "install it with: python -m pip install 'hwbench[huggingface]'"
        ) from None
    return pyarrow


def _batches(arrow: Any, path: Path) -> list[Any]:
    """The batches of an Arrow file: a stream, as Hugging Face writes it, or a file with a footer."""
    try:
        with arrow.ipc.open_stream(arrow.memory_map(str(path))) as stream:
            return list(stream)
    except arrow.ArrowInvalid:
        with arrow.ipc.open_file(arrow.memory_map(str(path))) as file:
            return [file.get_batch(number) for number in range(file.num_record_batches)]
