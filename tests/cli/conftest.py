import pytest

from hwbench.workspace import Workspace


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    """An empty one, which is the current folder."""
    made = Workspace.create(tmp_path / "bench")
    monkeypatch.chdir(made.root)
    return made
