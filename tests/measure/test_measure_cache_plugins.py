"""Keys of the build cache follow the sources of other packages: blocks, graph rules and runtimes."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from hwbench.interpreter import python_path
from hwbench.measure import cache
from hwbench.measure.cache import ArtifactCache
from hwbench.specs import Workload

OWN = "conv_i3_o4_k1x3x3_relu@1x3x2x8x8/fp32/auto"
OTHER = "mine_i4_o4_k1x1x1_relu@1x4x2x8x8/fp32/auto"
MIXED = "conv_i3_o4_k1x3x3_relu>mine_i4_o4_k1x1x1_relu@1x3x2x8x8/fp32/auto"
HAND = "hand-network_i3_o5_k1x1x1_t2_h8_w8_ot1_oh1_ow1_p0-a.b_v7_identity@1x3x2x8x8/fp32/auto"
WORKLOADS = (OWN, OTHER, MIXED, HAND)
ENGINES = ("executorch", "torch", "slow")
KIND = """
from hwbench.specs import BlockKind

class Mine(BlockKind):
    name, module = "mine", "{module}:build"

mine = Mine()
"""
RUNTIME = """
from hwbench.runtimes import Capabilities, FileFormat, Runtime

class Slow(Runtime):
    name = "slow"
    capabilities = Capabilities(("torch",), FileFormat(".slow"), "slow_runtime:Model")
"""
KEYS = """
import json, sys, pathlib
from hwbench.measure import cache
from hwbench.measure.cache import ArtifactCache
from hwbench.runtimes import get, names
from hwbench.specs import Workload
folder = pathlib.Path(sys.argv[1])
keys = {f"{engine} {key}": ArtifactCache(folder, engine).key(Workload.parse(key))
        for engine in json.loads(sys.argv[2]) if engine in names() for key in json.loads(sys.argv[3])}
eager = {f"file {key}": get("torch").build(None, None, Workload.parse(key), folder / "file", ()).sha256
         for key in json.loads(sys.argv[3]) if not key.startswith("hand-")}
assert "torch" not in sys.modules and "my_blocks" not in sys.modules
print(json.dumps(keys | eager))
"""


class Site:
    """A folder of installed packages, and the keys in a process that sees them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "site"
        self._out = folder / "out"
        self._out.mkdir()
        self.folder.mkdir()

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def offer(self, package: str, group: str, points: str, top_level: str = "") -> None:
        about = f"{package.replace('-', '_')}-1.0.dist-info"
        self.write(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        self.write(f"{about}/entry_points.txt", f"[{group}]\n{points}\n")
        if top_level:
            self.write(f"{about}/top_level.txt", top_level)

    def keys(self) -> dict[str, str]:
        asked = json.dumps(ENGINES), json.dumps(WORKLOADS)
        done = subprocess.run(
            [sys.executable, "-B", "-P", "-W", "error", "-c", KEYS, self._out, *asked],
            env={"PYTHONPATH": f"{self.folder}:{python_path()}"}, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        found: dict[str, str] = json.loads(done.stdout)
        return found

    def changed(self, name: str, text: str = "\nMORE = 1\n") -> set[str]:
        """What has another key once a file has grown."""
        before = self.keys()
        with (self.folder / name).open("a") as file:
            file.write(text)
        return {key for key, value in self.keys().items() if before[key] != value}


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """One with a kind of block, whose module lies beside it."""
    site = Site(tmp_path)
    site.write("my_kinds.py", KIND.format(module="my_blocks"))
    site.write("my_blocks.py", "import my_layers\n")
    site.write("my_layers.py", "")
    site.offer("my-blocks", "hwbench.kinds", "mine = my_kinds:mine", "my_blocks\nmy_kinds\nmy_layers\n")
    return site


def of(workloads: tuple[str, ...], engines: tuple[str, ...] = ("executorch", "torch", "file")) -> set[str]:
    return {f"{engine} {workload}" for engine in engines for workload in workloads}


@pytest.mark.parametrize("name", ["my_kinds.py", "my_blocks.py", "my_layers.py"])
def test_an_edited_block_of_another_package_is_built_again(site: Site, name: str) -> None:
    assert site.changed(name) == of((OTHER, MIXED))


def test_all_files_of_a_package_count_and_where_it_lies_does_not(tmp_path: Path) -> None:
    site = Site(tmp_path)
    for name in ("plug/__init__.py", "plug/deep/layers.py", "plug/blocks.py"):
        site.write(f"company/{name}", "")
    site.write("company/plug/kinds.py", KIND.format(module="company.plug.blocks"))
    site.write("company/others.py", "")
    site.offer("plug", "hwbench.kinds", "mine = company.plug.kinds:mine")
    assert site.changed("company/plug/deep/layers.py") == of((OTHER, MIXED))
    assert site.changed("company/others.py") == set()  # of another distribution
    before = site.keys()
    site.folder = site.folder.rename(tmp_path / "moved")
    assert site.keys() == before


def test_an_edited_graph_rule_counts_where_modules_are_rewritten(site: Site) -> None:
    without = site.keys()
    site.write("my_rules.py", "def softplus(call):\n    pass\n")
    site.offer("my-rules", "hwbench.graph_rules", "aten.softplus.default = my_rules:softplus")
    touched = of((OTHER, MIXED, HAND), ("executorch",))
    assert {key for key, value in site.keys().items() if without[key] != value} == touched
    assert site.changed("my_rules.py") == touched
    again = "aten.softplus.default = my_rules:softplus\naten.logit.default = my_rules:softplus"
    before = site.keys()
    site.offer("my-rules", "hwbench.graph_rules", again)
    assert {key for key, value in site.keys().items() if before[key] != value} == touched


def test_an_edited_runtime_of_another_package_builds_again(site: Site) -> None:
    site.write("slow_runtime.py", RUNTIME)
    site.offer("slow", "hwbench.runtimes", "slow = slow_runtime:Slow")
    assert site.changed("slow_runtime.py") == of(WORKLOADS, ("slow",))


def test_keys_of_our_own_blocks_are_those_without_other_packages(site: Site, tmp_path: Path) -> None:
    site.write("my_rules.py", "")
    site.offer("my-rules", "hwbench.graph_rules", "aten.softplus.default = my_rules:softplus")
    keys = site.keys()
    for engine in ("executorch", "torch"):
        assert keys[f"{engine} {OWN}"] == ArtifactCache(tmp_path, engine).key(Workload.parse(OWN))


def test_the_key_of_our_own_blocks_has_no_line_for_other_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """What stores and caches of before hold: a digest of these lines."""
    monkeypatch.setattr(cache, "installed_version", lambda name: "1")
    monkeypatch.setattr(cache, "sources_digest", lambda: "of sources")
    expected = hashlib.sha256(f"{OWN}\ntorch\n1\ntorch=1\nof sources".encode()).hexdigest()
    assert ArtifactCache(Path("nowhere"), "torch").key(Workload.parse(OWN)) == expected
