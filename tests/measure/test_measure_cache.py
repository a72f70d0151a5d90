import dataclasses
import hashlib
import importlib.metadata
import json
import re
import subprocess
import sys

import pytest

from hwbench.api.prediction import installed_target
from hwbench.devices import Device
from hwbench.errors import MissingDependency, UnknownName
from hwbench.measure import cache as module
from hwbench.measure.cache import ArtifactCache, engine_version
from hwbench.runtimes.executorch import ExecuTorch
from hwbench.specs import Artifact, DelegationReport, Workload

WORKLOAD = Workload.parse("x3d_i24_m54_o24_k3x3x3_swish@1x24x4x14x14/int8/auto")
OTHER = Workload.parse("x3d_i24_m54_o24_k3x3x3_swish@1x24x4x14x14/fp32/auto")


def put(root, workload=WORKLOAD):
    """A built file as a worker leaves it."""
    cache = ArtifactCache(root, "executorch")
    root.mkdir(exist_ok=True)
    path = root / f"{cache.key(workload)}.pte"
    path.write_bytes(b"program of " + workload.key.encode())
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    artifact = Artifact(path, digest, workload, "executorch", cache.version, DelegationReport(1, {"aten.mean": 2}))
    cache.save(artifact)
    return artifact


def test_what_was_saved_is_loaded(tmp_path):
    artifact = put(tmp_path / "cache")
    assert ArtifactCache(tmp_path / "cache", "executorch").load(WORKLOAD) == artifact
    assert ArtifactCache(tmp_path / "cache", "executorch").load(OTHER) is None
    stream = dataclasses.replace(artifact, states=("float32", "int8"))
    ArtifactCache(tmp_path / "cache", "executorch").save(stream)
    assert ArtifactCache(tmp_path / "cache", "executorch").load(WORKLOAD) == stream
    assert ArtifactCache(tmp_path / "nowhere", "executorch").load(WORKLOAD) is None


@pytest.mark.parametrize("damage", ["file", "gone", "description", "values", "other"])
def test_a_damaged_entry_counts_as_missing(tmp_path, damage):
    artifact = put(tmp_path / "cache")
    description = artifact.path.with_suffix(".json")
    if damage == "file":
        artifact.path.write_bytes(artifact.path.read_bytes()[:-1] + b"!")
    elif damage == "gone":
        artifact.path.unlink()
    elif damage == "description":
        description.write_text(description.read_text()[:40])
    elif damage == "values":
        description.write_text(json.dumps({"file": 7, "sha256": None}))
    else:
        description.write_text(description.read_text().replace("int8", "fp32"))
    assert ArtifactCache(tmp_path / "cache", "executorch").load(WORKLOAD) is None


def test_keys_depend_on_workload_engine_and_sources(tmp_path, monkeypatch):
    cache = ArtifactCache(tmp_path, "executorch")
    keys = {cache.key(WORKLOAD), cache.key(OTHER), ArtifactCache(tmp_path, "torch").key(WORKLOAD)}
    monkeypatch.setattr(module, "installed_version", lambda name: "99")
    keys.add(ArtifactCache(tmp_path, "executorch").key(WORKLOAD))
    monkeypatch.undo()
    monkeypatch.setattr(module, "sources_digest", lambda: "changed")
    keys.add(ArtifactCache(tmp_path, "executorch").key(WORKLOAD))
    assert len(keys) == 5


def test_the_digest_of_the_sources_covers_the_blocks_and_the_runtimes():
    covered = {path.name for path in module.sources()}
    assert {"block.py", "base.py", "build_worker.py"} <= covered
    assert not {"protocol.py", "python_runner.py", "runner_bundle.py", "model_server.py"} & covered


def test_a_warm_cache_answers_without_torch_and_without_a_process(tmp_path):
    root = tmp_path / "cache"
    put(root)
    code = f"""
import subprocess, sys
subprocess.Popen = None
from pathlib import Path
from hwbench.measure.builder import build_all
from hwbench.specs import Workload
results = list(build_all([Workload.parse({WORKLOAD.key!r})] * 2, "executorch", Path({str(root)!r})))
assert "torch" not in sys.modules
print(len(results), results[0].path.name)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["1", put(root).path.name]


def test_a_missing_engine_is_named_with_the_command_that_installs_it(monkeypatch):
    known = dataclasses.replace(ExecuTorch.capabilities, packages=("hwbench-no-such-package",))
    monkeypatch.setattr(ExecuTorch, "capabilities", known)
    with pytest.raises(MissingDependency, match="pip install"):
        engine_version("executorch")


@pytest.mark.parametrize(
    ("runtime", "engine", "all_of_it"),
    [("openvino", "openvino", "hwbench[openvino]"), ("litert", "ai-edge-litert", "hwbench[litert]")],
)
def test_who_builds_files_is_told_of_all_that_it_takes(tmp_path, monkeypatch, runtime, engine, all_of_it):
    def version(distribution):
        raise importlib.metadata.PackageNotFoundError(distribution)

    monkeypatch.setattr(importlib.metadata, "version", version)
    command = f"{engine} is not installed; install it with: python -m pip install"
    for ask in (
        lambda: ArtifactCache(tmp_path, runtime).load(OTHER),
        lambda: installed_target(Device("local", "local"), runtime, 1),
    ):
        with pytest.raises(MissingDependency, match=re.escape(f"{command} '{all_of_it}'") + "$"):
            ask()
    with pytest.raises(MissingDependency, match=f"{command} {engine}$"):  # who runs files needs no more
        engine_version(runtime)


def test_an_unknown_engine_is_answered_with_the_known_ones():
    with pytest.raises(UnknownName, match="executorch"):
        engine_version("executorhc")
