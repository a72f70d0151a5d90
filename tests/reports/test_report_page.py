"""The whole page, read as a browser reads it."""

import json
import re
from dataclasses import replace

import pytest

from hwbench.errors import InvalidFile, InvalidValue, UnknownName, WorkspaceError
from hwbench.latency import LatencyTable, Role
from hwbench.reports import commands, gather, page, write
from hwbench.reports.page import _resource
from hwbench.specs import Precision
from hwbench.training.recipe_files import RecipeFile

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)> & <a href='http://evil.example'>me</a>"
FIGURES = ("pareto", "history", "importance", "predicted", "blocks", "precisions")


@pytest.fixture
def report(workspace, fp32_table):
    return gather(workspace, "mine")


@pytest.fixture
def shown(report, parse):
    return parse(page(report))


def test_nothing_is_loaded(shown):
    policy = next(a["content"] for tag, a in shown.elements if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; ")
    assert "http" not in policy
    loading = ("src", "href", "srcset", "data", "action", "poster")
    assert not [(tag, a) for tag, a in shown.elements for name in loading if name in a]
    assert {tag for tag, _ in shown.elements}.isdisjoint({"link", "img", "iframe", "object", "base", "form"})
    own = _resource("page.css") + _resource("page.js")
    assert not re.search(r"@import|url\(|https?:|fetch\(|XMLHttp|import\(", own)


def test_plotly_is_there_once_and_shows_no_links_of_its_own(shown, report):
    scripts = [text for name, text in shown.raw.items() if name.startswith("script")]
    assert sum(len(text) > 1e6 for text in scripts) == 1
    assert "displaylogo: false" in scripts[-1]
    assert "displayModeBar: false" in scripts[-1]


def test_every_figure_has_its_place_and_its_data(shown):
    places = [a["id"] for tag, a in shown.elements if a.get("class") == "plot"]
    assert places == list(FIGURES)
    for name in FIGURES:
        figure = shown.figure(name)
        assert figure["data"]
        axes = [axis for key, axis in figure["layout"].items() if re.fullmatch(r"[xy]axis\d*", key)]
        titles = [axis["title"]["text"] for axis in axes if "title" in axis and "text" in axis["title"]]
        assert len(titles) >= 2


def test_the_front_has_every_trial_the_measured_and_the_budget(shown, report):
    result = report.result
    assert len(shown.trace("pareto", "trials, predicted")["x"]) == len(result.history) == 16
    assert len(shown.trace("pareto", "front, predicted")["x"]) == len(result.pareto)
    measured = [c for c in result.measured if c.measured_s is not None]
    assert len(shown.trace("pareto", "candidates, measured")["x"]) == len(measured) - 1
    winner = shown.trace("pareto", "winner, measured")
    assert winner["x"] == [pytest.approx(1e3 * result.best.measured_s)]
    assert winner["y"] == [result.best.score]
    (line,) = shown.figure("pareto")["layout"]["shapes"]
    assert line["x0"] == line["x1"] == 4.2


def test_networks_are_compared_by_origin(shown, report):
    calibration, candidates = (shown.trace("predicted", name) for name in ("calibration", "candidates"))
    assert [len(t["x"]) for t in (calibration, candidates)] == [len(g.comparisons) for g in report.groups]
    assert [g.name for g in report.groups] == ["calibration", "candidates"]
    summary = report.groups[0].summary
    assert f"MAPE {summary.mape:.2%}" in shown.text
    band = shown.trace("predicted", "prediction interval")
    assert band["y"][0] / band["x"][0] == pytest.approx(report.spread)
    assert {t["name"] for t in shown.figure("predicted")["data"]} >= {"±5 %", "±10 %", "equal"}


@pytest.mark.parametrize("wide", [False, True])
def test_networks_of_another_space_are_not_held_out(workspace, measured_of_another_space, wide):
    measured_of_another_space(3, "width = 40" if wide else "width = 32")
    held_out = [group for group in gather(workspace, "mine").groups if group.name == "held out"]
    assert [len(group.comparisons) for group in held_out] == ([] if wide else [3])


def test_history_is_in_order_and_the_best_never_falls(shown, report):
    trials, best = shown.trace("history", "trial"), shown.trace("history", "best so far")
    assert trials["x"] == sorted(trials["x"])
    assert best["y"] == sorted(best["y"])
    assert best["y"][-1] == max(c.score for c in report.result.history)


def test_blocks_stand_in_network_order_and_add_up_to_the_prediction(shown, report):
    (bars,) = shown.figure("blocks")["data"]
    assert bars["y"][0] == "stem"
    assert bars["y"][-1] == "head"
    predicted = report.winner.whole[Precision.INT8].predicted.seconds
    constant = report.predictor.constant_s  # which the caption tells
    assert sum(bars["x"]) == pytest.approx(1e3 * (predicted - constant))
    assert predicted == pytest.approx(report.result.best.predicted_s, rel=1e-3)
    assert sum(float(text.rstrip("%")) for text in bars["text"]) == pytest.approx(100, abs=0.5)
    axis = shown.figure("blocks")["layout"]["yaxis"]
    assert axis["categoryarray"] == bars["y"]
    assert axis["autorange"] == "reversed"


def test_both_precisions_stand_side_by_side(shown, report):
    fp32, int8 = shown.figure("precisions")["data"]
    assert (fp32["name"], int8["name"]) == ("fp32", "int8")
    assert len(fp32["x"]) == len(int8["x"]) == len(report.winner.blocks)
    assert sum(fp32["x"]) > 1.5 * sum(int8["x"])


def test_numbers_of_the_winner_have_units(shown, report):
    best = report.result.best
    for text in (f"{1e3 * best.predicted_s:.3f} ms", f"{1e3 * best.measured_s:.3f} ms", "4.2 ms", "entropy (nats)"):
        assert text in shown.text
    assert re.search(r"90 % interval \d\.\d+ – \d\.\d+ ms, on the occasion of the table", shown.text)
    assert "The band is the prediction interval on the occasion of the table, a factor of 1." in shown.text
    assert "95 % interval" in shown.text
    assert best.architecture in shown.codes


def test_every_command_is_written_out(shown, report):
    place = "--device local --precision int8 --threads 1 --runtime executorch --classes 8"
    assert {
        f"hwbench profile {place} --space x3d-tiny",
        f"hwbench profile {place.replace('int8', 'fp32')} --space x3d-tiny",
        f"hwbench validate {place} --space x3d-tiny --networks 12 --no-interpolate",
        f"hwbench search --space x3d-tiny {place} --budget 4.2ms --trials 16 --evaluator entropy --sampler thompson "
        "--objective score --seed 0 --measure 4 --no-interpolate --study mine",
        f"hwbench bench mine:best {place}",
        f"hwbench bench mine:best {place.replace('int8', 'fp32')}",
        "hwbench train mine:best --data synthetic --out runs/mine",
        "hwbench export runs/mine/checkpoint.pt --precision int8 --runtime executorch --out runs/mine/int8",
        "hwbench report mine --out report.html",
    } <= set(shown.commands)
    sections = page(report).split("<h2>")[1:]
    assert len(sections) == 11
    assert all("hwbench " in section for section in sections)


def test_provenance_names_table_conditions_versions_and_dates(shown, report, int8_table):
    import hashlib

    import hwbench

    assert hashlib.sha256(int8_table.read_bytes()).hexdigest() in shown.text
    assert f"profiles/local/{int8_table.name}" in shown.text
    assert "A <b>fake</b> processor" in shown.text  # as text, not as markup
    assert "b" not in {tag for tag, _ in shown.elements}
    assert hwbench.__version__ in shown.text
    assert "2026-01-31" in shown.text
    assert report.searched[0][:10] in shown.text
    assert report.winner.measurement.measurement.artifact_sha256 in shown.text


def test_hostile_text_stays_text(workspace, fp32_table, stored, parse, make_export):
    def edit(values):
        for key in ("history", "measured", "pareto"):
            for item in values[key]:
                item["architecture"] = HOSTILE
        values["best"]["architecture"] = HOSTILE
        values["measured"][0] |= {"measured_ms": None, "failure": HOSTILE}
        values["settings"] |= {"space": HOSTILE, "evaluator": HOSTILE, "data": HOSTILE, "sampler": HOSTILE}

    stored(edit)
    folder = make_export(name="hostile", architecture=HOSTILE, precision=HOSTILE)
    text = page(gather(workspace, "mine", [folder]))
    shown = parse(text)
    assert "<script>alert" not in text
    assert "<img" not in text
    assert not any(tag == "a" for tag, _ in shown.elements)
    assert shown.text.count("alert(1)") > 5
    assert sum(tag == "script" for tag, _ in shown.elements) == 2 + len(shown.raw) - 3
    assert HOSTILE in shown.codes
    for name in ("pareto", "history"):
        drawn = json.dumps(shown.figure(name))
        assert "alert(1)" in drawn
        assert not re.search(r"<(?!br>|extra>|/extra>)", drawn)
    quoted = next(c for c in shown.commands if c.startswith("hwbench search"))
    assert """--space '</script><script>""" in quoted


def test_without_a_table_the_page_says_what_to_measure(workspace, int8_table, parse):
    int8_table.unlink()
    report = gather(workspace, "mine")
    shown = parse(page(report))
    assert len(shown.trace("pareto", "trials, predicted")["x"]) == 16
    assert len(shown.trace("predicted", "candidates")["x"]) == len(report.result.measured)
    assert "prediction interval" not in {t.get("name") for t in shown.figure("predicted")["data"]}
    assert "no latency table of local/executorch" in shown.text
    assert "hwbench profile --device local --space x3d-tiny --precision int8" in shown.text
    assert "within the interval" not in shown.text
    assert [a["id"] for _, a in shown.elements if a.get("class") == "plot"] == [
        "pareto",
        "history",
        "importance",
        "predicted",
    ]
    assert any("no latency table" in reason for reason in report.missing())


def test_without_the_other_precision_the_page_says_what_to_measure(workspace, parse):
    shown = parse(page(gather(workspace, "mine")))
    assert "precisions-data" not in shown.raw
    assert "blocks-data" in shown.raw
    assert "hwbench profile --device local --space x3d-tiny --precision fp32" in shown.text


def test_rows_that_the_other_precision_lacks_are_named(workspace, fp32_table, parse):
    table = LatencyTable.read(fp32_table)
    kept = [row for row in table if not row.workload.key.startswith("head")]
    LatencyTable(table.target, table.precision, kept).write(fp32_table)
    shown = parse(page(gather(workspace, "mine")))
    assert "no calibration networks" in shown.text or "0 calibration networks" in shown.text


def test_a_block_without_a_row_is_left_out_and_named(workspace, fp32_table, parse):
    winner = gather(workspace, "mine").winner
    lost = winner.blocks[1].workload.blocks[0].key
    table = LatencyTable.read(fp32_table)
    kept = [row for row in table if not row.workload.key.startswith(f"{lost}@")]
    LatencyTable(table.target, table.precision, kept).write(fp32_table)
    shown = parse(page(gather(workspace, "mine")))
    assert f"the fp32 table has no rows for 1 blocks of the winner ({winner.blocks[1].name})" in shown.text
    fp32, int8 = shown.figure("precisions")["data"]
    assert len(fp32["x"]) == len(int8["x"]) - 1
    assert winner.blocks[1].name not in fp32["y"]


def test_without_space_device_store_and_journal_the_page_is_still_written(workspace, parse, stored):
    stored(lambda values: values["settings"].update(space="gone"))
    workspace.store.unlink()
    (workspace.studies / "mine" / "journal.log").unlink()
    report = gather(workspace, "mine")
    shown = parse(page(report))
    assert "unknown space 'gone'" in shown.text
    assert "the store of measurements is not in this workspace" in shown.text
    assert "the journal of the study is gone" in shown.text
    assert not workspace.store.exists()
    assert "s1" in shown.text  # the stages are read from the architecture


def test_a_damaged_table_or_store_is_named_and_the_rest_is_shown(workspace, int8_table, parse):
    int8_table.write_text("nonsense")
    workspace.store.write_bytes(b"nonsense" * 1000)
    shown = parse(page(gather(workspace, "mine")))
    assert f"{int8_table.name}: expected a first line" in shown.text
    assert "is not a measurement store of this version" in shown.text
    assert "history-data" in shown.raw


def test_a_space_that_was_edited_is_told(workspace, stored, parse):
    stored(lambda values: values["settings"].update(choices="0123456789abcdef"))
    assert "was changed after the search" in parse(page(gather(workspace, "mine"))).text


def test_a_table_that_was_measured_again_is_told(workspace, int8_table, parse):
    table = LatencyTable.read(int8_table)
    import dataclasses

    slower = [
        dataclasses.replace(
            row,
            stats=dataclasses.replace(
                row.stats,
                **{
                    name: 1.2 * getattr(row.stats, name)
                    for name in ("median_s", "p10_s", "p90_s", "ci_low_s", "ci_high_s")
                },
            ),
        )
        for row in table
    ]
    LatencyTable(table.target, table.precision, slower).write(int8_table)
    assert "the latency table was changed after the search" in parse(page(gather(workspace, "mine"))).text


def test_models_give_accuracy_and_size(workspace, make_export, parse):
    folder = make_export(accuracy={"top1_after": 0.85, "videos": 48}, parity={"sqnr_db": 31.25})
    shown = parse(page(gather(workspace, "mine", [folder])))
    for text in ("85.0%", "87.5%", "-2.5 points", "7 B", "31.2", "Tested on 48 videos.", str(folder / "model.pte")):
        assert text in shown.text
    assert any(c.startswith(f"hwbench bench {folder}/model.pte --device local") for c in shown.commands)
    assert any(c == f"hwbench report mine --model {folder} --out report.html" for c in shown.commands)
    assert "no exported model was given" not in shown.text


def test_models_that_do_not_fit_are_told(workspace, make_export, parse):
    changed = make_export("int8", content=b"another model")
    other = make_export("fp32", architecture={"name": "zoo:x3d-xs"}, top1_after=None, reason="weights are random")
    (other / "model.pte").unlink()
    text = parse(page(gather(workspace, "mine", [changed, other]))).text
    assert "sha256 differs" in text
    assert "is of zoo:x3d-xs, which is not the winner" in text
    assert "model.pte is not there" in text
    assert "weights are random" in text


def test_without_a_model_the_page_says_how_to_make_one(shown):
    assert "no exported model was given" in shown.text
    assert any("--model runs/mine/int8" in c for c in shown.commands)


@pytest.mark.parametrize("content", [None, "{", "[]", '{"precision": "int8"}'])
def test_a_folder_that_is_no_export_is_refused(workspace, tmp_path, content):
    folder = tmp_path / "empty"
    folder.mkdir()
    if content is not None:
        (folder / "manifest.json").write_text(content)
    with pytest.raises(InvalidFile, match=r"manifest\.json"):
        gather(workspace, "mine", [folder])


def test_an_unknown_study_is_answered_with_the_known_ones(workspace):
    with pytest.raises(UnknownName, match="did you mean 'mine'"):
        gather(workspace, "mien")
    with pytest.raises(InvalidValue, match="expected a name"):
        gather(workspace, "../studies/mine")


def test_the_file_is_written_as_one(workspace, tmp_path):
    out = tmp_path / "new folder" / "report.html"
    write(workspace, "mine", out)
    assert [p.name for p in out.parent.iterdir()] == ["report.html"]
    text = out.read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>")
    assert text.endswith("</html>\n")


def test_a_place_that_cannot_be_written_is_named(workspace, tmp_path):
    (tmp_path / "file").touch()
    for out in (tmp_path, tmp_path / "file" / "report.html"):
        with pytest.raises(WorkspaceError, match="cannot write"):
            write(workspace, "mine", out)
    assert not list(tmp_path.parent.glob(".*.tmp"))


@pytest.mark.parametrize(("name", "told"), [("muon", ""), ("sgd", ""), ("lamb", "--set weight_decay=0.05 ")])
def test_the_training_command_says_what_its_optimizer_does_not(workspace, parse, make_export, name, told):
    decay = {"weight_decay": 0.05} if name == "lamb" else {}
    usual = RecipeFile.of({"optimizer": name, "epochs": 3} | decay).recipe()
    weights = {"kind": "checkpoint", "recipe": usual.to_plain()}
    shown = parse(page(gather(workspace, "mine", [make_export(weights=weights, accuracy={"source": "videos"})])))
    options = f"--epochs 3 --batch-size 16 --lr {usual.learning_rate:g} --optimizer {name} --precision fp32 --seed 0"
    assert f"hwbench train mine:best --data videos {options} {told}--out runs/mine" in shown.commands


def test_the_training_command_is_that_of_the_recipe(workspace, parse, make_export):
    recipe = {"epochs": 14, "batch_size": 8, "learning_rate": 0.05, "seed": 3, "dropout": 0.5, "momentum": 0.95}
    recipe |= {"transforms": ["flip:0.5", "rand-augment:2,9"], "compile": True}
    weights, accuracy = {"kind": "checkpoint", "recipe": recipe}, {"source": "../my videos"}
    shown = parse(page(gather(workspace, "mine", [make_export(weights=weights, accuracy=accuracy)])))
    options = "--epochs 14 --batch-size 8 --lr 0.05 --seed 3 --set dropout=0.5"
    options += " --set 'transforms=flip:0.5;rand-augment:2,9' --set compile=true"
    assert f"hwbench train mine:best --data '../my videos' {options} --out runs/mine" in shown.commands


def test_a_model_of_ones_own_is_called_as_it_was_named(workspace, stored, parse):
    def edit(values):
        values["settings"].update(space="mynets.clips", choices="0" * 12)
        values["named"] = {"mynets.clips": "mynets:clips"}
        values["best"]["architecture"] = "mynets.clips:frames=8,resolution=48"

    stored(edit)
    shown = parse(page(gather(workspace, "mine")))
    place = "--device local --precision int8 --threads 1 --runtime executorch --classes 8"
    assert {
        f"hwbench profile {place} --space mynets:clips",
        f"hwbench bench mynets:clips {place}",
        "hwbench train mynets:clips --data synthetic --out runs/mine",
        "hwbench export runs/mine/checkpoint.pt --precision int8 --runtime executorch --out runs/mine/int8 "
        "--made-by mynets:clips",
    } <= set(shown.commands)
    lines = [*shown.commands, *shown.codes]
    assert any(line.startswith("hwbench search --space mynets:clips ") for line in lines)
    assert not any("validate" in line or "mynets.clips " in line or "mine:best" in line for line in lines)
    assert "the space is a model of your own, mynets:clips: a report does not import its code" in shown.text
    assert "unknown space" not in shown.text


def test_an_exported_model_of_ones_own_is_the_winner_of_its_study(workspace, stored, make_export):
    def edit(values):
        values["settings"].update(space="mynets.clips", choices="0" * 12)
        values["named"] = {"mynets.clips": "mynets:clips@1x3x8x48x48"}
        values["best"]["architecture"] = "mynets.clips:frames=8,resolution=48"

    stored(edit)
    winner = make_export("int8", architecture={"name": "mynets:clips@1x3x8x48x48"})
    other = make_export("fp32", architecture={"name": "mynets:other@1x3x8x48x48"})
    doubts = [doubt for doubt in gather(workspace, "mine", [winner, other]).doubts if "winner" in doubt]
    assert doubts == [f"{other}/model.pte is of mynets:other@1x3x8x48x48, which is not the winner of this study"]


def test_one_network_predicts_for_a_model_of_ones_own(workspace, stored, int8_table):
    table = LatencyTable.read(int8_table)
    table.without([row.workload for row in table.rows(Role.NETWORK)][1:]).write(int8_table)
    assert any("1 calibration networks, at least 3" in reason for reason in gather(workspace, "mine").missing())

    def edit(values):
        values["settings"].update(space="mynets.clips", choices="0" * 12)
        values["named"] = {"mynets.clips": "mynets:clips"}

    stored(edit)
    report = gather(workspace, "mine")
    assert not any("calibration" in reason for reason in report.missing())
    page(report)


def test_the_file_of_a_study_says_what_was_named_and_how_many_were_measured(workspace, stored):
    result = gather(workspace, "mine").result
    values = stored(lambda values: values.update(named=["mynets"]))
    assert values["course"]["measure"] == 4
    with pytest.raises(InvalidFile, match="named: expected the names of models by space"):
        gather(workspace, "mine")
    old = replace(result, course=replace(result.course, measure=None))
    assert f" --measure {len(result.measured)} " in commands.search(old)
    (faster, *_), settings = sorted(result.measured, key=lambda c: c.predicted_s), result.settings
    front = replace(old, settings=replace(settings, smaller_budgets_ms=(1e3 * faster.predicted_s,)))
    assert f" --measure {len(result.measured) - 1} " in commands.search(front)


def test_the_search_is_printed_with_its_pruner_storage_and_emulation(workspace, stored, parse):
    stored(lambda values: values["settings"].update(pruner="asha", emulated=True))
    folder = workspace.studies / "mine"
    (folder / "journal.log").unlink()
    (folder / "storage.txt").write_text("sqlite:////my work/studies.db\n")
    report = gather(workspace, "mine")
    command = commands.search(report.result)
    for option in ("--pruner asha", "--storage 'sqlite:////my work/studies.db'", "--allow-emulated"):
        assert f" {option} " in command
    text = parse(page(report)).text
    assert "unknown: trials are kept in sqlite:////my work/studies.db" in text
    assert "the latency table was taken under emulation" in text
    assert "the journal of the study is gone" not in text


@pytest.mark.parametrize("low", [0.1, -0.1])
def test_a_model_of_trainings_of_before_is_judged_by_them(workspace, stored, parse, low):
    learned = {"networks": 15, "tau": 0.43, "tau_low": low, "tau_high": 0.69, "deviation": 0.007}

    def edit(values):
        values["settings"].update(evaluator="fitted")
        values["learned"] = learned

    stored(edit)
    report = gather(workspace, "mine")
    told = f"ranks 15 of their networks, each left out in turn, with a Kendall's tau of 0.43 (95 %: {low:.2f} to 0.69)"
    assert told in parse(page(report)).text
    doubts = [one for one in report.doubts if "uninformative" in one]
    assert [one[:59] for one in doubts] == ["evaluator fitted is uninformative on the 15 networks that i"] * (low < 0)
    del learned["tau"]
    stored(edit)
    with pytest.raises(InvalidFile, match="learned: expected a rank correlation, got"):
        gather(workspace, "mine")


def test_a_budget_for_minutes_is_told_as_it_was_asked_for(workspace, stored, parse):
    stored(lambda values: values["settings"].update(budget_ms=779.788, sustained={"local": 1.2824}))
    report = gather(workspace, "mine")
    assert "within 1000 ms for minutes (779.788 ms on the cool device, ratio 1.2824)" in parse(page(report)).text
    assert " --budget 1000ms " in commands.search(report.result)


def test_further_targets_have_commands_of_their_own(workspace, stored, parse):
    def edit(values):
        values["settings"]["further_budgets_ms"] = {"pi5/onnx-1.2/t4": 9.0}
        for one in (values["best"], *values["pareto"], *values["measured"], *values["history"]):
            one["predicted_ms"]["pi5"] = 5.0

    stored(edit)
    shown = parse(page(gather(workspace, "mine")))
    place = "--device pi5 --precision int8 --threads 4 --runtime onnx --classes 8"
    assert {f"hwbench profile {place} --space x3d-tiny", f"hwbench bench mine:best {place}"} <= set(shown.codes)


def test_a_model_of_another_budget_is_told_with_its_budget(workspace, stored, make_export):
    def edit(values):
        values["settings"]["smaller_budgets_ms"] = [3.6]
        small = {"budget_ms": 3.6, "feasible": 40, "best": values["pareto"][0]}
        values["front"] = [small, {"budget_ms": 4.2, "feasible": 151, "best": values["best"]}]

    values = stored(edit)
    assert values["pareto"][0]["architecture"] != values["best"]["architecture"]
    folder = make_export(architecture=values["pareto"][0]["architecture"])
    (doubt,) = [text for text in gather(workspace, "mine", [folder]).doubts if "winner within" in text]
    assert doubt.endswith("is of the winner within 3.6 ms, not within 4.2 ms")
