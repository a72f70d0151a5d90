"""README.md and the pages of ``docs/`` are true: links lead somewhere, commands parse, code runs, the site builds."""

import ast
import dataclasses
import inspect
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

import pytest
from markdown_pages import (
    LONG,
    NOT_RUN,
    PAGES,
    PRINTED,
    PROGRAMS,
    ROOT,
    SHOWN,
    Block,
    blocks,
    commands,
    lines_of,
    mentions,
    name_of,
    parse,
    parse_mention,
    prose,
)

import hwbench
from hwbench.api import API
from hwbench.api.requests import fields_of
from hwbench.devices import laboratory
from hwbench.interpreter import python_path
from hwbench.runtimes import Capabilities
from hwbench.workspace import Workspace

DOCS = ROOT / ".ci" / "docs"
every_page = pytest.mark.parametrize("page", PAGES, ids=name_of)


@every_page
def test_links_between_files_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", prose(page))
    assert [link for link in links if not (page.parent / link).exists()] == []


@every_page
def test_files_of_the_repository_that_a_page_names_are_there(page: Path) -> None:
    named = re.findall(r"`((?:hwbench|experiments|tests|\.ci|docs)/[\w./-]+)`", prose(page))
    assert [name for name in named if not (ROOT / name).exists()] == []


@every_page
def test_every_block_is_of_a_known_kind(page: Path) -> None:
    for block in blocks(page):
        where = f"{name_of(page)}:{block.line}"
        assert block.language in {"python", "toml", "bash", *SHOWN}, where
        assert block.language != "toml" or block.title, f"{where}: a toml block says its file: title=..."
        if block.language in ("python", "toml"):
            assert block.reason is None or block.reason in {*NOT_RUN, LONG}, f"{where}: {block.marker}"


@every_page
def test_every_command_parses(page: Path) -> None:
    for block in blocks(page, "bash"):
        for words in lines_of(block):
            program = words[1] if words[0] == "sudo" else words[0]
            assert program in {"hwbench", "make", *PROGRAMS}, f"{name_of(page)}:{block.line}: {program}"
    for words in commands(page):
        parse(words)
    for words in mentions(page):
        parse_mention(words)


@every_page
def test_make_targets_exist(page: Path) -> None:
    makefile = (ROOT / "Makefile").read_text()
    of_blocks = [words[1] for block in blocks(page, "bash") for words in lines_of(block) if words[0] == "make"]
    for target in {*of_blocks, *re.findall(r"`make ([a-z-]+)[^`]*`", prose(page))}:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def install(folder: Path, values: dict) -> None:
    """What ``pip install -e .`` leaves of a project: its metadata with the entry points, of modules that it names."""
    project, modules = values["project"], values["tool"]["setuptools"]["py-modules"]
    of_points = [point for group in project["entry-points"].values() for point in group.values()]
    assert {point.partition(":")[0] for point in of_points} <= set(modules)
    assert all((folder / f"{module}.py").is_file() for module in modules)
    made = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    made.mkdir()
    (made / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    groups = project["entry-points"].items()
    lines = [f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in of.items()) for group, of in groups]
    (made / "entry_points.txt").write_text("\n".join(lines))


class PageRunner:
    """Runs pages, each in a process of its own that begins with torch loaded."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        environment = os.environ | {"PYTHONPATH": python_path(), "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, str(ROOT / "tests" / "page_runner.py")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
        )  # fmt: skip

    def run(self, page: Path, code: list[Block], files: list[Block]) -> str:
        """What the page printed; fails where a block raises, a file does not validate, or stderr is not empty."""
        workspace = Workspace.create(Path(tempfile.mkdtemp(prefix=page.stem, dir=self._folder)))
        # Tests that a page runs obey this, not a pytest.ini or pyproject.toml that lies above the temporary folder.
        (workspace.root / "pytest.ini").write_text("[pytest]\nfilterwarnings = error::pytest.PytestWarning\n")
        for block in files:
            assert block.title is not None
            path = workspace.root / block.title
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text)
        for block in files:
            if block.title == "pyproject.toml":
                install(workspace.root, tomllib.loads(block.text))
        read = [block.title for block in files if block.language == "toml" and block.title != "pyproject.toml"]
        request = {
            "cwd": str(workspace.root),
            "page": str(page),
            "blocks": [(block.line, block.text) for block in code],
            "files": read,
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(request), file=self._process.stdin, flush=True)
        status = self._process.stdout.readline().strip()
        printed, said = (Path(f"{workspace.root}{suffix}").read_text() for suffix in (".out", ".err"))
        assert (status, said) == ("0", ""), f"{name_of(page)}\n{printed}\n{said}"
        return printed

    def close(self) -> None:
        self._process.communicate(timeout=60)


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory):
    runner = PageRunner(tmp_path_factory.mktemp("pages"))
    yield runner
    runner.close()


def runs(page: Path) -> bool:
    return any(block.reason in (None, LONG) for block in blocks(page, "python", "toml"))


def takes_long(page: Path) -> bool:
    return any(block.reason == LONG for block in blocks(page))


RUNS = [pytest.param(page, {None}, id=name_of(page)) for page in PAGES if runs(page)]
RUNS += [
    pytest.param(page, {None, LONG}, id=f"{name_of(page)}-{LONG}", marks=pytest.mark.long)
    for page in PAGES
    if takes_long(page)
]


@pytest.mark.parametrize(("page", "reasons"), RUNS)
def test_the_code_of_a_page_runs(page: Path, reasons: set[str | None], pages: PageRunner) -> None:
    """Blocks that take long are left out first, and run with all others then."""
    shown = [block for block in blocks(page, "python", "toml") if block.reason in reasons]
    printed = pages.run(page, [b for b in shown if b.title is None], [b for b in shown if b.title is not None])
    for code, text in itertools.pairwise(blocks(page)):
        if text.marker == PRINTED and code.reason in reasons:
            assert text.text in printed


@every_page
def test_what_is_not_run_compiles_and_its_requests_have_such_fields(page: Path) -> None:
    for block in blocks(page, "python"):
        tree = ast.parse(block.text, f"{page}:{block.line}")
        compile(tree, str(page), "exec")
        for call in ast.walk(tree):
            name = ast.unparse(call.func).removeprefix("hwbench.") if isinstance(call, ast.Call) else ""
            if name.endswith("Request") and name in API:
                known = {one.name for one in fields_of(getattr(hwbench, name))}
                assert {word.arg for word in call.keywords} <= known, f"{name_of(page)}:{block.line}: {name}"


@every_page
def test_entry_points_are_of_groups_that_are_read(page: Path) -> None:
    source = "".join(path.read_text() for path in (ROOT / "hwbench").rglob("*.py"))
    groups = set(re.findall(r'entry_points="([a-z_.]+)"', source))
    for block in blocks(page, "toml"):
        if block.title == "pyproject.toml":
            assert set(tomllib.loads(block.text)["project"]["entry-points"]) <= groups


def test_the_table_of_extending_names_every_group_of_entry_points() -> None:
    source = "".join(path.read_text() for path in (ROOT / "hwbench").rglob("*.py"))
    groups = set(re.findall(r'entry_points="([a-z_.]+)"', source))
    rows = [line for line in (ROOT / "docs" / "extending" / "index.md").read_text().splitlines() if line[:1] == "|"]
    assert set(re.findall(r"`(hwbench\.[a-z_]+)`", "\n".join(rows))) == groups
    places = {place for row in rows for place in re.findall(r"`(hwbench/[\w/.]+)`", row)}
    assert len(places) >= 6
    assert all((ROOT / place).exists() for place in places)


def judged_by(tree: ast.AST) -> dict[str, str]:
    """By the name of a function of ``hwbench`` what of its result a command fails by: as in ``if not result.ok``."""
    found = {}
    for command in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        for node in ast.walk(command):
            if isinstance(node, ast.If) and any(isinstance(one, ast.Raise) for one in node.body):
                judge = ast.unparse(node.test).removeprefix("not ")
            elif isinstance(node, ast.Expr):
                judge = ast.unparse(node.value)
            else:
                continue
            calls = re.findall(r"result = (\w+)\(request, listener\)", ast.unparse(command))
            if calls and judge.startswith("result."):
                found[calls[0]] = judge
    return found


def test_the_page_on_python_names_what_commands_fail_by() -> None:
    _, _, text = (ROOT / "docs/guides/python.md").read_text().partition("## Results that judge")
    rows = [row.split("|") for row in text.partition("\n## ")[0].splitlines() if row.startswith("| `")]
    named = {name: row[2].split("`")[1] for row in rows for name in re.findall(r"`hwbench\.(\w+)`", row[1])}
    modules = [ast.parse(path.read_text()) for path in (ROOT / "hwbench" / "cli").glob("*.py")]
    assert named == {name: judge for tree in modules for name, judge in judged_by(tree).items()}
    for name, judge in named.items():
        results = inspect.signature(getattr(hwbench, name)).return_annotation.split(" | ")
        for result in (getattr(hwbench, one) for one in results):
            assert judge.removeprefix("result.").removesuffix("()") in {*dir(result), *result.__dataclass_fields__}


@pytest.mark.parametrize(
    ("page", "over"), [("README.md", "ssh"), ("docs/tutorials/pi.md", "ssh"), ("docs/tutorials/phone.md", "adb")]
)
def test_an_emulated_device_needs_the_packages_that_a_page_names(
    page: str, over: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(laboratory, "program_path", lambda name: None)
    _, _, packages = laboratory.install_command(laboratory.missing_programs(over)).partition(" install ")
    named = re.findall(r"`apt-get install ([^`]*proot[^`]*)`", (ROOT / page).read_text())
    everywhere = {"util-linux"}  # without which there is no Debian
    assert [set(one.split()) for one in named] == [set(packages.split()) - everywhere]


def test_the_table_of_a_runtime_has_every_field_of_its_capabilities() -> None:
    rows = [
        line for line in (ROOT / "docs" / "extending" / "runtime.md").read_text().splitlines() if line.startswith("| `")
    ]
    assert [row.split("`")[1] for row in rows] == [field.name for field in dataclasses.fields(Capabilities)]


def test_the_generated_parts_of_pages_are_known_and_filled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(DOCS))
    import reference

    used = [name for page in PAGES for name in reference.MARKER.findall(page.read_text())]
    assert sorted(used) == sorted(reference.GENERATORS)
    page = ROOT / "docs" / "reference" / "errors.md"
    assert f"-->\n{reference.NOTE}\n" in page.read_text()  # who reads the page as it is sees that a part is missing
    built = reference.filled(page.read_text())
    assert reference.NOTE not in built
    assert "<!-- generated:" not in built
    commands = reference.commands()
    assert "## hwbench devices add" in commands
    assert "--remeasure" in commands
    assert "`NotCalibrated`" in reference.errors()
    for name in ("report", "ReportRequest", "Listener"):
        assert f"## hwbench.{name}\n" in reference.api()


def test_the_keys_of_results_are_those_that_they_print(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(DOCS))
    import reference
    from result_keys import FunctionKeys

    text = reference.results()
    listed = [getattr(hwbench, name) for name in re.findall(r"(?m)^### (\w+)$", text)]
    keys = {value.__name__: FunctionKeys(value.to_json, value).names() for value in listed}
    assert len(keys) > 25
    assert keys["ExportResult"][:3] == ["model", "manifest", "architecture"]  # of a function of the same module
    assert {"top1_after", "states", "seconds"} <= set(keys["ExportResult"])
    assert keys["BenchDataResult"] == ["data", "clip", "rates", "stages", "stage_ms", "seconds"]  # not those of rates
    assert {"median_ms", "profile", "sustained"} <= set(keys["BenchResult"])
    assert {"front", "race", "pareto"} <= set(keys["SearchResult"])
    assert "`verdict`" in text.partition("### TableVerification")[2].partition("###")[0]
    begun = hwbench.init(hwbench.InitRequest(directory=tmp_path / "work"))
    monkeypatch.chdir(tmp_path / "work")
    for result in (begun, hwbench.list_data(), hwbench.list_zoo(), hwbench.list_devices()):
        assert list(result.to_json()) == keys[type(result).__name__]


@pytest.mark.skipif(shutil.which("mkdocs", path=Path(sys.executable).parent) is None, reason="pip install mkdocs")
def test_the_site_builds_strictly_and_asks_no_network(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(DOCS / "mkdocs.yml"), "-d", str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": python_path(), "NO_MKDOCS_2_WARNING": "true"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    made = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.html")}
    assert {"index.html", "reference/commands.html", "extending/index.html"} <= made
    fetched = re.compile(
        r'<(?:script|img|iframe)[^>]* src="https?:|<link[^>]*(?:stylesheet|preconnect)[^>]* href="https?:'
    )
    for page in tmp_path.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert not fetched.search(text), page
        assert "<!-- generated:" not in text
        assert "in the built page alone" not in text
