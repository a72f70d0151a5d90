"""``hwbench report`` as it is typed."""

import json
import shlex
from pathlib import Path

import pytest

from hwbench.cli.main import main
from hwbench.deploy.atomic_export import check_place, staging


@pytest.fixture
def run(workspace, monkeypatch, capsys):
    monkeypatch.chdir(workspace.root)

    def _run(*arguments: str) -> tuple[int, str, str]:
        try:
            main(["report", *arguments])
            status = 0
        except SystemExit as end:
            status = end.code or 0
        return (status, *capsys.readouterr())

    return _run


def test_the_page_is_written_where_asked(run, workspace, make_export):
    models = [str(make_export("int8")), str(make_export("fp32"))]
    status, out, err = run("mine", "--out", "page.html", "--model", models[0], "--model", models[1], "--json")
    assert status == 0, err
    values = json.loads(out)
    assert list(values)[:3] == ["report", "study", "seconds"]
    assert values["report"] == "page.html"
    text = (workspace.root / "page.html").read_text(encoding="utf-8")
    assert all(model in text for model in models)
    assert any("fp32" in reason for reason in values["missing"])


def test_what_is_missing_is_said(run, workspace):
    status, out, err = run("mine")
    assert status == 0
    assert "report.html" in out
    assert "not in the report: no latency table" in err
    assert (workspace.root / "report.html").is_file()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["mien"], "did you mean 'mine'"),
        (["mine:best"], "expected a name"),
        (["mine", "--out", "."], "cannot write"),
        (["mine", "--out", "search_spaces/x3d-tiny.toml/report.html"], "cannot write"),
        (["mine", "--model", "nowhere"], "expected the folder of an exported model"),
        ([], "expected one of a study, a device"),
    ],
)
def test_a_wrong_request_is_one_clear_error(run, arguments, said):
    status, out, err = run(*arguments)
    assert (status, out) == (2, "")
    assert said in " ".join(err.split())
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("typed", "there", "folder"),
    [
        ("my model", None, "my model"),
        ("my model", "my model/notes.txt", "my model"),
        ("my model", "my model/model.pte", "my model-int8"),
        ("my folder/lonely.pte", "my folder/lonely.pte", "my folder/lonely"),
        ("lonely.xnnpack.pte", None, "lonely"),
        ("lonely", "lonely", "lonely-int8"),
    ],
)
def test_without_a_manifest_an_export_is_advised_that_can_be_written(run, workspace, typed, there, folder):
    if there is not None:
        (workspace.root / there).parent.mkdir(exist_ok=True)
        (workspace.root / there).touch()
    status, _, err = run("mine", "--model", typed)
    words = shlex.split(err)
    assert (status, words[-7:]) == (
        2,
        ["hwbench", "export", "CHECKPOINT", "--precision", "int8", "--out", folder],
    )
    check_place(Path(folder), "model.pte")
    with staging(Path(folder)):
        pass


def test_a_damaged_result_is_one_clear_error(run, workspace):
    path = workspace.studies / "mine" / "result.json"
    path.write_text(path.read_text().replace('"score":', '"skore":'))
    status, out, err = run("mine")
    assert (status, out) == (2, "")
    assert "result.json: damaged: best.score: expected a number, got nothing" in " ".join(err.split())
    assert not (workspace.root / "report.html").exists()
