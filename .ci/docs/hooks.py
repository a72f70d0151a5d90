"""What MkDocs calls while it builds: fills the generated parts of pages, and lists the pages of docs/extending."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import reference  # noqa: E402  # beside this file


def on_config(config):
    """A page of docs/extending enters the navigation by being there; the overview comes first."""
    folder = HERE.parents[1] / "docs" / "extending"
    names = sorted((page.name for page in folder.glob("*.md")), key=lambda name: (name != "index.md", name))
    for section in config.nav:
        if isinstance(section, dict) and "Extending" in section:
            section["Extending"] = [f"extending/{name}" for name in names]
    return config


def on_page_markdown(markdown, **_):
    """``<!-- generated: NAME -->`` becomes what ``reference.py`` makes."""
    return reference.filled(markdown)
