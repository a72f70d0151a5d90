"""The pages of ``docs/`` are true: what they show runs, as it is shown."""

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from hwbench.interpreter import python_path
from hwbench.workspace import Workspace

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted((ROOT / "docs").rglob("*.md"))


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_between_files_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_files_of_the_repository_that_a_page_names_are_there(page: Path) -> None:
    named = re.findall(r"`((?:hwbench|experiments|\.ci|docs)/[\w./-]+)`", page.read_text(encoding="utf-8"))
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_a_block_of_ones_own_goes_into_a_search_as_the_page_shows(tmp_path: Path) -> None:
    page = ROOT / "docs" / "extending.md"
    module, *listings = blocks(page, "python")
    _, space = blocks(page, "toml")
    workspace = Workspace.create(tmp_path / "bench")
    (tmp_path / "my_blocks.py").write_text(module)
    (workspace.root / "search_spaces" / "fused.toml").write_text(space)
    script = tmp_path / "page.py"
    script.write_text("\n".join(listings))
    done = subprocess.run(
        [sys.executable, str(script)], cwd=workspace.root, capture_output=True, text=True, timeout=600,
        env={"PYTHONPATH": f"{tmp_path}:{python_path()}", "PATH": ""},
    )  # fmt: skip
    assert done.stderr == ""
    assert re.fullmatch(r"\d+ of 12 networks; fused:frames=\d,resolution=32,s1\.depth=\d,s1\.width=\d+\n", done.stdout)


def test_the_table_of_extending_tells_files_that_are_there() -> None:
    table = blocks_of_table((ROOT / "docs" / "extending.md").read_text(encoding="utf-8"))
    places = [place for row in table for place in re.findall(r"`(hwbench/[\w/.]+)`", row)]
    assert len(places) >= 6
    assert [place for place in places if not (ROOT / place).exists()] == []
    groups = set(re.findall(r"`(hwbench\.\w+)` \|$", "\n".join(table), re.MULTILINE))
    source = subprocess.run(
        ["git", "grep", "-hoE", r'entry_points="[a-z_.]+"', "--", "hwbench"], cwd=ROOT, capture_output=True, text=True
    ).stdout
    if source:
        assert groups == set(re.findall(r'"([a-z_.]+)"', source))


def blocks_of_table(text: str) -> list[str]:
    return textwrap.dedent(text).partition("## ")[0].splitlines()[2:]
