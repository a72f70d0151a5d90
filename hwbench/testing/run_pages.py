"""The programs that a file's ``RUN.md`` shows, taken from the page as a reader would take them."""

from __future__ import annotations

import os
import re
import subprocess
import sysconfig
from pathlib import Path


def page_programs(page: str, language: str) -> list[str]:
    """The blocks of code of a page in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)


def build_page_program(page: str, folder: Path, options: str = "-O0") -> None:
    """Builds the C++ program of a page as ``run`` in a folder, with the command of the page.

    Args:
        page: Has one program in C++, and one command that builds it.
        folder: Gets the source and the program.
        options: In the place of ``-O2``: compiled sooner, and the libraries do the work.

    Raises:
        AssertionError: It does not compile; the compiler's words.
    """
    (program,) = page_programs(page, "cpp")
    (build,) = (commands for commands in page_programs(page, "bash") if "c++" in commands)
    (folder / "run.cpp").write_text(program)
    path = f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", "-ec", build.replace("-O2", options)],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": path},
        check=False,
    )
    assert done.returncode == 0, done.stderr


def frames_of_page(page: str, folder: Path, frame_bytes: int) -> list[bytes]:
    """The frames that the page's command takes of a video in which the first 10 of 18 come six times as fast.

    Args:
        page: Has one command of ffmpeg.
        folder: Gets the video and the file of frames.
        frame_bytes: Of one frame, as the command writes it.

    Raises:
        CalledProcessError: A command fails.
    """
    frames = "testsrc2=size=64x64:rate=30:duration=2,select='lt(n\\,10)+not(mod(n\\,6))'"
    made = ["ffmpeg", "-v", "error", "-f", "lavfi", "-i", frames, "-vsync", "vfr", "video.mp4"]
    subprocess.run(made, cwd=folder, check=True, capture_output=True)
    (command,) = (commands for commands in page_programs(page, "bash") if "ffmpeg" in commands)
    subprocess.run(["sh", "-ec", command], cwd=folder, check=True, capture_output=True)
    (written,) = folder.glob("*.rgb")
    content = written.read_bytes()
    return [content[at : at + frame_bytes] for at in range(0, len(content), frame_bytes)]
