"""Measures by hand, and the file of scores."""

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

import hwbench
from hwbench.api.test import TestRequest
from hwbench.data.video_scores import VideoScores, load_scores, save_scores
from hwbench.errors import InvalidFile, WorkspaceError
from hwbench.training.metrics import accuracy
from hwbench.workspace import Workspace, check_writable

CLASSES = ("a", "b", "c")
SCORES = torch.tensor([[0.7, 0.2, 0.1], [0.5, 0.4, 0.1], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4]], dtype=torch.float64)
ONE = VideoScores(CLASSES, ("1", "2", "3", "4"), torch.tensor([0, 1, 1, 1]), SCORES)
SEVERAL = VideoScores(
    CLASSES,
    ("1", "2", "3", "4"),
    torch.tensor([[1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [0.0, 1.0, 0.0], [0.0, 1.0, 0.0]]),
    SCORES,
)


def test_top_k_is_that_of_the_validation() -> None:
    assert (ONE.top(1), ONE.top(5)) == accuracy(SCORES, ONE.targets) == (0.5, 1.0)
    assert ONE.top(2) == 0.75 + 0.25 * (SCORES[3].topk(2).indices == 1).any()
    assert SEVERAL.top(1) == 0.75


def test_guessing_is_right_as_often_as_videos_have_classes() -> None:
    assert ONE.chance == 1 / 3
    assert SEVERAL.chance == pytest.approx((1 + 2 + 1 + 1) / (4 * 3))
    soft = VideoScores(CLASSES, ("1",), torch.tensor([[0.9, 0.6, 0.4]]), SCORES[:1])
    assert soft.chance == pytest.approx(2 / 3)  # as top-1 counts right classes


def test_classes_one_by_one() -> None:
    assert ONE.class_accuracy() == {"a": 1.0, "b": pytest.approx(1 / 3)}
    assert SEVERAL.class_accuracy() == {"a": 1.0, "b": pytest.approx(2 / 3)}
    assert ONE.confusion().tolist() == [[1, 0, 0], [1, 1, 1], [0, 0, 0]]
    assert SEVERAL.confusion() is None
    assert ONE.measures()["class_top1"] == pytest.approx(2 / 3)


def test_the_calibration_error_by_hand() -> None:
    # ten bins: 0.7 right, 0.5 wrong, 0.8 right, 0.4 wrong
    assert ONE.calibration_error(10) == pytest.approx((0.3 + 0.5 + 0.2 + 0.4) / 4)
    # one bin: what is said too much and too little adds up
    assert ONE.calibration_error(1) == pytest.approx(abs(0.7 + 0.5 + 0.8 + 0.4 - 2) / 4)
    sure = VideoScores(CLASSES, ("1",), torch.tensor([1]), torch.tensor([[0.0, 1.0, 0.0]], dtype=torch.float64))
    assert sure.calibration_error() == 0.0
    assert SEVERAL.calibration_error() is None


def test_the_bins_of_the_calibration_error_are_what_it_is_made_of() -> None:
    first, second = ONE.calibration(2)
    assert (first.videos, first.confidence, first.accuracy) == (2, pytest.approx(0.45), 0.0)
    assert (second.videos, second.confidence, second.accuracy) == (2, pytest.approx(0.75), 1.0)
    for bins in (1, 2, 10, 15):
        gaps = sum(one.videos * abs(one.confidence - one.accuracy) for one in ONE.calibration(bins))
        assert gaps / 4 == pytest.approx(ONE.calibration_error(bins))
    assert SEVERAL.calibration() == ()


def test_the_mean_average_precision_by_hand() -> None:
    # a: right ones are first and second. b: the order is 3, 2, 4, 1, and all but the last are right. c never occurs.
    assert SEVERAL.mean_average_precision() == 1.0
    # b: 3 right, 2 right, 4 right; a: first
    assert ONE.mean_average_precision() == 1.0
    worse = VideoScores(CLASSES, ONE.videos, torch.tensor([1, 0, 0, 0]), SCORES)
    # a: order 1, 2, 4, 3: 1/2, 2/3, 3/4; b: last of four
    assert worse.mean_average_precision() == pytest.approx(((1 / 2 + 2 / 3 + 3 / 4) / 3 + 1 / 4) / 2)
    assert "mean_ap" in SEVERAL.measures()
    nothing = VideoScores(CLASSES, SEVERAL.videos, torch.zeros_like(SEVERAL.targets), SEVERAL.scores)
    assert nothing.mean_average_precision() is None
    assert "mean_ap" not in nothing.measures()
    assert "mean_ap" not in nothing.report()


@pytest.mark.parametrize("scores", [ONE, SEVERAL], ids=["one", "several"])
def test_scores_are_kept_in_a_file_that_numpy_reads(tmp_path: Path, scores: VideoScores) -> None:
    path = tmp_path / "scores.npz"
    save_scores(path, scores)
    again = load_scores(path)
    assert (again.classes, again.videos) == (scores.classes, scores.videos)
    assert torch.equal(again.targets, scores.targets)
    assert torch.equal(again.scores, scores.scores)
    assert again.report() == scores.report()
    json.dumps(scores.report(), allow_nan=False)
    with np.load(path, allow_pickle=False) as file:
        assert sorted(file) == ["classes", "scores", "targets", "videos"]


def test_other_files_are_one_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "scores.npz"
    for data in (b"", b"text", b"PK\x03\x04 no archive"):
        path.write_bytes(data)
        with pytest.raises(InvalidFile, match=r"scores\.npz"):
            load_scores(path)
    np.savez(path, classes=np.array(CLASSES))
    with pytest.raises(InvalidFile, match=r"scores\.npz"):
        load_scores(path)
    np.savez(path, classes=np.array(CLASSES), videos=np.array(["1"]), targets=np.zeros(2), scores=np.zeros((2, 3)))
    with pytest.raises(InvalidFile, match="do not fit"):
        load_scores(path)
    with pytest.raises(InvalidFile, match="missing"):
        load_scores(tmp_path / "missing.npz")


def array(header: str) -> bytes:
    """An array of numpy with that header and eight bytes of values."""
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + bytes(8)


@pytest.mark.parametrize(
    "scores",
    [
        array("{'descr': '<f8', 'fortran_order': False, 'shape': (100000000000000,)}"),
        array("{'descr': '<f8', 'fortran_order': False, 'shape': (1" + "0" * 30 + ",)}"),
        array("{'descr': '<f8',"),
        array("  {\n {\n{'descr'"),
        array("  1\n 1"),
    ],
    ids=["terabytes", "no-number-of-c", "half", "brackets", "indented"],
)
def test_19_25_an_array_that_numpy_cannot_make_is_one_clear_error(tmp_path: Path, scores: bytes) -> None:
    path = tmp_path / "scores.npz"
    save_scores(path, ONE)
    with zipfile.ZipFile(path) as file:
        members = {name: file.read(name) for name in file.namelist()}
    with zipfile.ZipFile(path, "w") as file:
        for name, data in (members | {"scores.npy": scores}).items():
            file.writestr(name, data)
    with pytest.raises(InvalidFile, match=r"scores\.npz: cannot be read as scores"):
        load_scores(path)


def test_19_25_an_encrypted_file_of_scores_is_one_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "scores.npz"
    save_scores(path, ONE)
    data = bytearray(path.read_bytes())
    for begin, flags in ((b"PK\x01\x02", 8), (b"PK\x03\x04", 6)):
        at = -1
        while (at := data.find(begin, at + 1)) >= 0:
            data[at + flags] |= 1
    path.write_bytes(data)
    with pytest.raises(InvalidFile, match=r"scores\.npz: cannot be read as scores: .*encrypted"):
        load_scores(path)


def test_a_file_that_cannot_be_written_is_refused_before_the_checkpoint_is_read(tmp_path: Path) -> None:
    workspace = Workspace.create(tmp_path / "workspace")
    (tmp_path / "taken").write_text("mine")
    for scores, reason in ((tmp_path / "taken" / "a.npz", "a part of the path is a file"), (tmp_path, "a directory")):
        with pytest.raises(WorkspaceError, match=f"cannot write {tmp_path}.*{reason}"):
            hwbench.test(TestRequest(checkpoint=tmp_path / "none.pt", scores=scores), workspace=workspace)
    check_writable(tmp_path / "new" / "folder" / "a.npz")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["taken", "workspace"]
