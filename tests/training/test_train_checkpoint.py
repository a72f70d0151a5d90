import io
import json
import os
import pickle
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from hwbench.data import ClipSpec, Normalisation, PictureSpec, Resize
from hwbench.errors import InvalidFile
from hwbench.specs import BlockSpec, Network, TensorSpec
from hwbench.training import Checkpoint, Recipe, load_checkpoint, save_checkpoint

NETWORK = Network(
    "x3d-tiny:frames=4",
    tuple(
        BlockSpec.parse(key)
        for key in (
            "stem_i3_o8_k1x3x3+5x1x1_s2_relu",
            "x3d_i8_m16_o8_k3x3x3_s2_swish",
            "head_i8_m16_d32_o3_kglobal_relu",
        )
    ),
    TensorSpec(1, 3, 4, 32, 32),
)
CHECKPOINT = Checkpoint(
    network=NETWORK,
    classes=("a", "b", "c"),
    recipe=Recipe(learning_rate=0.1 + 0.2, seed=2**60),
    clip=ClipSpec(4, span_s=1.5),
    metrics={"top1": 1 / 3, "seconds": 12.5},
    source="some/where",
    facts={"data": "abc"},
    normalisation=Normalisation((0.1, 0.2, 0.3), (1.0, 2.0, 3.0)),
)
WEIGHTS = {"a.weight": torch.randn(3, 4), "a.count": torch.tensor(7), "b": torch.randn(2, 8, 1).bfloat16()}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return save_checkpoint(tmp_path / "checkpoint.pt", CHECKPOINT, WEIGHTS).path


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    saved = save_checkpoint(tmp_path / "deep" / "checkpoint.pt", CHECKPOINT, WEIGHTS)
    loaded, weights = load_checkpoint(saved.path)
    assert loaded == saved
    assert loaded == replace(CHECKPOINT, path=saved.path, sha256=saved.sha256)
    assert len(loaded.sha256) == 64
    assert weights.keys() == WEIGHTS.keys()
    for name, tensor in weights.items():
        assert tensor.dtype == WEIGHTS[name].dtype
        assert torch.equal(tensor, WEIGHTS[name])


def test_a_clip_and_a_picture_of_another_code_base_are_kept(tmp_path: Path) -> None:
    clip = ClipSpec(4, stride=12, target_fps=30, convention="pytorchvideo")
    picture = PictureSpec((1.1375, 1.425), 1.1375, Resize.SHORT_SIDE)
    saved = save_checkpoint(tmp_path / "file.pt", replace(CHECKPOINT, clip=clip, picture=picture), WEIGHTS)
    loaded, _ = load_checkpoint(saved.path)
    assert (loaded.clip, loaded.picture) == (clip, picture)


def test_the_seed_that_split_the_data_is_kept_where_it_is_another(tmp_path: Path) -> None:
    assert CHECKPOINT.data_seed == 2**60
    saved = save_checkpoint(tmp_path / "file.pt", replace(CHECKPOINT, split_seed=0), WEIGHTS)
    loaded, _ = load_checkpoint(saved.path)
    assert (loaded, loaded.data_seed, loaded.recipe.seed) == (saved, 0, 2**60)


def test_what_says_nothing_new_is_written_as_before(file: Path) -> None:
    meta = json.loads(torch.load(file, weights_only=True)["meta"])
    assert meta["clip"] == {"frames": 4, "stride": None, "span_s": 1.5}
    assert "picture" not in meta
    assert "split_seed" not in meta


def test_every_way_to_damage_it_names_the_file(file: Path) -> None:
    data = file.read_bytes()
    for cut in (0, 1, 10, len(data) // 2, len(data) - 1):
        file.write_bytes(data[:cut])
        with pytest.raises(InvalidFile, match=r"checkpoint\.pt"):
            load_checkpoint(file)
    step = max(1, len(data) // 150)
    for at in range(0, len(data), step):
        changed = bytearray(data)
        changed[at] ^= 0x5A
        file.write_bytes(changed)
        message = refusal(file)
        if message is None:  # a byte nobody reads: padding of the archive
            loaded, weights = load_checkpoint(file)
            assert replace(loaded, sha256="") == replace(CHECKPOINT, path=file, sha256="")
            assert all(torch.equal(weights[name], WEIGHTS[name]) for name in WEIGHTS)
        else:
            assert str(file) in message
            assert "\n" not in message


def refusal(file: Path) -> str | None:
    try:
        load_checkpoint(file)
    except InvalidFile as error:
        return str(error)
    return None


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch evil",)


def test_other_files_are_refused_and_run_nothing(file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    values = torch.load(file, weights_only=True)
    others = {
        "pickle": pickle.dumps(Evil()),
        "torch with code": _torch_bytes({"format": "hwbench-checkpoint", "weights": Evil()}),
        "state dict": _torch_bytes(WEIGHTS),
        "list": _torch_bytes([1, 2]),
        "json": json.dumps({"a": 1}).encode(),
        "newer": _torch_bytes({**values, "schema": 99}),
        "no weights": _torch_bytes({k: v for k, v in values.items() if k != "weights"}),
        "odd weights": _torch_bytes({**values, "weights": {"a": "text"}}),
        "odd meta": _torch_bytes({**values, "meta": "{"}),
    }
    for name, data in others.items():
        file.write_bytes(data)
        with pytest.raises(InvalidFile, match=r"checkpoint\.pt"):
            load_checkpoint(file)
        assert not Path("evil").exists(), name
    file.write_bytes(others["newer"])
    with pytest.raises(InvalidFile, match="99"):
        load_checkpoint(file)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.zeros(1).expand(10**15),  # says of one value that it is petabytes
        torch.zeros(2, 3).t(),
        torch.eye(3).to_sparse(),
        torch.zeros(3, device="meta"),
        torch.zeros(3, dtype=torch.complex64).conj(),
        torch._neg_view(torch.zeros(3)),
        3.0,
    ],
    ids=["expanded", "strides", "sparse", "meta", "conjugate", "negative", "number"],
)
def test_19_25_weights_that_are_no_plain_tensors_are_refused_before_they_are_looked_at(
    file: Path, tensor: torch.Tensor
) -> None:
    values = torch.load(file, weights_only=True)
    file.write_bytes(_torch_bytes({**values, "weights": {"b": WEIGHTS["b"], "a\x1b": tensor}}))
    with pytest.raises(InvalidFile, match=r"checkpoint\.pt: .*weights 'a\\x1b': expected a dense, contiguous tensor"):
        load_checkpoint(file)


def test_missing_files_and_folders(tmp_path: Path) -> None:
    for path in (tmp_path / "none.pt", tmp_path):
        with pytest.raises(InvalidFile, match="hwbench train"):
            load_checkpoint(path)


def _torch_bytes(values: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(values, buffer)
    return buffer.getvalue()
