import hashlib
import json
import shutil

import pytest
from written_manifest import write_manifest

from hwbench.api.bench import undisturbed_before
from hwbench.api.bench_request import session_timing
from hwbench.cli.main import main
from hwbench.errors import InvalidValue
from hwbench.measure.builder import build_all
from hwbench.measure.store import MeasurementStore
from hwbench.runtimes.runners import choose_runner
from hwbench.specs import Artifact, Session, Target, Timing, Workload
from hwbench.workspace import Workspace

BLOCK = Workload.parse("x3d_i8_m16_o8_k1x3x3_relu@1x8x4x16x16/fp32/auto")
QUICK = ("--samples", "10", "--seconds", "0.05", "--json")
KEYS = {"model", "device", "runtime", "precision", "threads", "median_ms", "p90_ms", "ci95_ms", "samples", "emulated"}


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """A real .pte."""
    (result,) = build_all([BLOCK], "executorch", tmp_path_factory.mktemp("cache"), processes=1)
    assert isinstance(result, Artifact), result.reason
    return result.path


@pytest.fixture(scope="module")
def root(tmp_path_factory, runner_cache):
    """One workspace for all tests here, with its runner: whichever comes first does not talk about building it."""
    made = Workspace.create(tmp_path_factory.mktemp("bench"))
    made.cache.symlink_to(runner_cache)
    choose_runner("executorch", made.cache)
    return made.root


@pytest.fixture
def workspace(root, monkeypatch):
    monkeypatch.chdir(root)
    return Workspace(root)


@pytest.fixture
def model(program, tmp_path):
    """The file as ``export`` leaves it."""
    path = tmp_path / "model.pte"
    shutil.copyfile(program, path)
    write_manifest(path)
    return path


def run(capsys, *arguments):
    status = 0
    try:
        main(["bench", *map(str, arguments)])
    except SystemExit as end:
        status = end.code or 0
    out, err = capsys.readouterr()
    return status, out, err


def test_a_file_is_measured(workspace, model, capsys):
    status, out, _ = run(capsys, model, "--device", "local", "--threads", "1", *QUICK)
    assert status == 0
    values = json.loads(out)
    assert set(values) >= KEYS
    assert (values["device"], values["runtime"], values["precision"]) == ("local", "executorch", "fp32")
    assert (values["threads"], values["emulated"]) == (1, False)
    low, high = values["ci95_ms"]
    assert 0 <= low <= values["median_ms"] <= high
    assert 0 < values["p90_ms"] < 1000
    assert values["samples"] >= 10


@pytest.mark.parametrize("cache", ["rotate", "flush"])
def test_the_state_of_the_caches_is_chosen_and_told(workspace, model, capsys, cache):
    status, out, _ = run(capsys, model, "--cache", cache, *QUICK)
    assert (status, json.loads(out)["cache"]) == (0, cache)


def test_a_folder_means_the_model_in_it_and_people_get_a_table(workspace, model, capsys):
    status, out, _ = run(capsys, model.parent, *QUICK[:-1])
    assert status == 0
    assert "median_ms" in out
    assert "ci95_ms" in out
    with pytest.raises(ValueError):
        json.loads(out)


def test_of_several_models_a_folder_means_the_one_that_its_manifest_names(workspace, model, capsys):
    (model.parent / "model.onnx").write_bytes(b"somebody else's")
    status, out, _ = run(capsys, model.parent, *QUICK)
    assert (status, json.loads(out)["runtime"]) == (0, "executorch")


def test_a_file_without_a_manifest_has_no_known_precision(workspace, model, capsys):
    (model.parent / "manifest.json").unlink()
    status, out, _ = run(capsys, model, *QUICK)
    assert (status, json.loads(out)["precision"]) == (0, None)


@pytest.mark.parametrize(
    "text", ["[]", '{"name": "a web page"}', '{"schema": "theirs", "sha256": "00"}', "no JSON", None]
)
def test_a_file_of_another_name_has_no_part_in_a_manifest_that_is_not_its_own(workspace, model, capsys, text):
    path = model.rename(model.with_name("net.pte"))
    if text is not None:
        (path.parent / "manifest.json").write_text(text)
    status, out, _ = run(capsys, path, *QUICK)
    assert (status, json.loads(out)["precision"]) == (0, "fp32" if text is None else None)


@pytest.mark.parametrize("damage", ["text", "empty", "cut", "noise"])
def test_a_damaged_program_is_named_in_one_line(workspace, model, capsys, damage):
    content = model.read_bytes()
    model.write_bytes(
        {
            "text": b"this is not a program",
            "empty": b"",
            "cut": content[: len(content) // 2],
            "noise": content[:200] + hashlib.sha256(content).digest() * (len(content) // 32),
        }[damage]
    )
    (model.parent / "manifest.json").unlink()
    status, out, err = run(capsys, model, *QUICK)
    assert (status, out) == (2, "")
    assert str(model) in err
    assert len(err.strip().splitlines()) == 1


def test_a_file_that_its_manifest_does_not_describe(workspace, model, capsys):
    model.write_bytes(model.read_bytes() + b"\0")
    status, _, err = run(capsys, model, *QUICK)
    assert status == 2
    assert "not the file that manifest.json describes" in err


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda text: "", "manifest.json: cannot be read as JSON: "),
        (lambda text: text[:-20], "manifest.json: cannot be read as JSON: "),
        (lambda text: "[]", "manifest.json: "),
        (lambda text: "{}", "manifest.json: key 'schema' is missing"),
        (lambda text: text.replace('"schema": 2', '"schema": 99'), "manifest.json: expected schema 2, got 99; update "),
        (
            lambda text: text.replace('"schema": 2', '"schema": "1"'),
            "manifest.json: expected schema 2, got '1'; update ",
        ),
        (lambda text: text.replace('"sha256"', '"sha257"'), "sha257"),
        (lambda text: json.dumps({**json.loads(text), "input": "foo"}), "manifest.json: input: expected an object"),
        (None, "manifest.json: cannot be read as JSON: "),  # a folder of this name
    ],
)
def test_a_damaged_manifest_is_told_in_the_words_of_verify(workspace, model, capsys, damage, said):
    manifest = model.parent / "manifest.json"
    text = manifest.read_text()
    if damage is None:
        manifest.unlink()
        manifest.mkdir()
    else:
        manifest.write_text(damage(text))
    status, out, err = run(capsys, model, *QUICK)
    assert (status, out, len(err.splitlines())) == (2, "", 1)
    assert said in err
    with pytest.raises(SystemExit):
        main(["verify", str(model)])
    assert capsys.readouterr().err == err


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["nowhere.pte"], 2, "no file nowhere.pte; make one: hwbench export"),
        (["out/nowhere"], 2, "no file or folder out/nowhere; make one: hwbench export"),
        (["out/manifest.json"], 2, "no file out/manifest.json; make one: hwbench export"),
        (["zoo:x3d-sx"], 2, "or 'x3d-xs'"),
        (["x3d-tiny"], 2, "unknown architecture 'x3d-tiny'"),
        (["nostudy:best"], 2, "no finished study 'nostudy'"),
        (["zoo:x3d-xs", "--device", "lokal"], 2, "did you mean 'local'"),
        (["zoo:x3d-xs", "--precision", "fp8"], 2, "expected fp32, fp16, bf16 or int8"),
        (["zoo:x3d-xs", "--runtime", "tflite"], 2, "unknown runtime 'tflite'"),
        (["zoo:x3d-xs", "--seconds", "nan"], 2, "--seconds"),
        (["zoo:x3d-xs", "--threads", "0"], 2, "--threads"),
        (["zoo:x3d-xs", "--cache", "cold"], 2, "--cache: expected warm, rotate or flush, got 'cold'"),
    ],
)
def test_wrong_input_is_one_message(workspace, capsys, arguments, status, said):
    got, out, err = run(capsys, *arguments)
    assert (got, out) == (status, "")
    assert said in err
    assert "Traceback" not in err


def test_options_that_contradict_the_file(workspace, model, capsys):
    status, _, err = run(capsys, model, "--precision", "int8", *QUICK)
    assert (status, "is in fp32, not in int8" in err) == (2, True)
    status, _, err = run(capsys, model, "--runtime", "torch", *QUICK)
    assert (status, "--runtime torch" in err) == (2, True)


@pytest.mark.parametrize("command", ["bench", "verify"])
def test_a_file_that_the_device_does_not_run_is_to_be_exported_for_it(workspace, tmp_path, capsys, command):
    path = tmp_path / "model.onnx"
    path.write_bytes(bytes.fromhex("0808"))  # the version of the format alone
    write_manifest(path)
    with pytest.raises(SystemExit) as end:
        main([command, str(path), "--device", "s9"])
    err = capsys.readouterr().err
    assert end.value.code == 2
    assert "onnx files are measured on this machine only (--device local); device 's9' runs executorch" in err
    assert err.strip().endswith("export the model for it: hwbench export MODEL --runtime executorch --out DIR")


def test_more_threads_than_cores(workspace, model, capsys):
    status, _, err = run(capsys, model, "--threads", "4096", *QUICK)
    assert status == 2
    assert "4096 threads" in err


def test_a_device_that_is_not_there(workspace, model, capsys):
    status, _, err = run(capsys, model, "--device", "s9", *QUICK)
    assert (status, "device 's9': " in err) == (3, True)


def test_samples_and_seconds_are_spread_over_sessions():
    timing = session_timing(101, 4.0)
    assert timing.min_rounds * timing.min_samples >= 101
    assert timing.min_rounds * timing.min_session_s == pytest.approx(4.0)
    assert timing.max_session_s > timing.min_session_s
    with pytest.raises(InvalidValue, match="--seconds"):
        session_timing(10, float("inf"))


@pytest.mark.parametrize("seconds", [1.5, 75.0, 86_400.0])
def test_a_core_that_is_never_quiet_is_no_timeout(seconds):
    timing = session_timing(50, seconds)
    waits_s, samples_s = 2 * timing.max_session_s, timing.max_session_s  # as runner.cpp does
    assert timing.timeout_s > waits_s + samples_s + 30


@pytest.mark.parametrize("damaged", [False, True])
def test_what_profiles_know_is_used_where_there_is_any(tmp_path, damaged):
    made = Workspace.create(tmp_path / "place")
    assert not undisturbed_before(made)({}, "runner").crowding.usual
    if damaged:
        made.store.parent.mkdir(parents=True, exist_ok=True)
        made.store.write_bytes(b"garbage" * 100)
        assert not undisturbed_before(made)({}, "runner").crowding.usual
        assert made.store.read_bytes() == b"garbage" * 100
        return
    target = Target("local", "executorch", "1", 1)
    session = Session((1e-3,), crowding=1.25)
    with MeasurementStore(made.store) as store:
        run = store.begin_run(target, {"cpus": "0"}, {"runner_build": "runner"})
        store.add_session(store.begin(BLOCK, target, Timing(), {"cpus": "0"}), session, run=run)
    assert undisturbed_before(made)({"cpus": "0"}, "runner").crowding.usual == 1.25
    assert not undisturbed_before(made)({"cpus": "0"}, "another").crowding.usual
    assert not undisturbed_before(made)({"cpus": "1"}, "runner").crowding.usual
