from pathlib import Path

import pytest
from tiny import data

from hwbench.data import TestClips, TrainingClips


@pytest.fixture(scope="session")
def data_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the small data set lies."""
    return tmp_path_factory.mktemp("workspace")


@pytest.fixture
def clips(data_root: Path) -> tuple[TrainingClips, TestClips]:
    """Fresh data sets for training and validation."""
    return data(data_root)
