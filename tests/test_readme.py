"""README.md is short and leads on; what it used to say of names and sizes stands in docs/reference, and is true."""

import re

import torch
from markdown_pages import PAGES, README, ROOT, commands, mentions

from hwbench.models import network
from hwbench.spaces.cards import load_card
from hwbench.workspace import Workspace

TEXT = README.read_text(encoding="utf-8")
NAMES = (ROOT / "docs" / "reference" / "names.md").read_text(encoding="utf-8")
# A picture is loaded by everybody who opens the page.
PICTURE_BYTES = 150_000


def test_it_is_read_in_two_minutes() -> None:
    assert len(TEXT.splitlines()) <= 150


def test_its_pictures_are_small() -> None:
    pictures = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", TEXT)
    assert pictures
    assert all((ROOT / picture).stat().st_size <= PICTURE_BYTES for picture in pictures)


def test_the_two_commands_stand_at_the_beginning() -> None:
    start = TEXT.partition("## One device")[0]
    assert "make quickstart" in start
    assert "make test" in start
    assert "make test" in (ROOT / ".ci" / "run").read_text().splitlines()


def test_every_page_is_reached_from_it() -> None:
    seen, todo = set(), [README]
    while todo:
        page = todo.pop()
        if page not in seen:
            seen.add(page)
            links = re.findall(r"\]\(([^)#:]+\.md)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
            todo += [path for path in ((page.parent / link).resolve() for link in links) if path in PAGES]
    assert set(PAGES) - seen == {ROOT / "docs" / "index.md"}  # the front page of the site


def test_the_whole_loop_is_shown() -> None:
    shown = {words[1] for page in PAGES for words in (*commands(page), *mentions(page))}
    assert shown >= {"doctor", "devices", "profile", "validate", "search", "train", "test", "export", "bench", "report"}
    assert shown >= {"quickstart", "init", "verify"}


def test_every_device_space_and_zoo_model_is_named_with_its_size() -> None:
    workspace = Workspace(ROOT)
    for name in (*workspace.names("profiles"), *workspace.names("search_spaces")):
        assert f"`{name}`" in NAMES
    for name in workspace.names("zoo"):
        shown = load_card(workspace, name).network()
        (row,) = [line for line in NAMES.splitlines() if line.startswith("|") and f"`zoo:{name}`" in line]
        assert f"| {shown.input.t} x {shown.input.h}" in row
        with torch.device("meta"):
            assert f"| {sum(parameter.numel() for parameter in network(shown).parameters()):,} |" in row
    assert {*re.findall(r"`zoo:([a-z0-9-]+)`", NAMES)} == {*workspace.names("zoo")}


def test_named_files_exist() -> None:
    for name in ("LICENSE", "constraints.txt"):
        assert name in TEXT
        assert (ROOT / name).is_file()
