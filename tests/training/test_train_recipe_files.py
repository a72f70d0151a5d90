"""Recipes in TOML: those that are shipped, what overrides what, and files that are wrong."""

import json
from dataclasses import asdict, fields
from pathlib import Path

import pytest

import hwbench
from hwbench.api.requests import fields_of
from hwbench.errors import InvalidFile, InvalidValue, UnknownName
from hwbench.training import Recipe
from hwbench.training.recipe_files import RecipeFile, names, parse_settings, setting_texts


def request(**values: object) -> Recipe:
    return hwbench.TrainRequest(architecture="zoo:x3d-xs", **values).make_recipe()  # type: ignore[arg-type]


def test_the_help_names_every_recipe() -> None:
    (option,) = [f for f in fields_of(hwbench.TrainRequest) if f.name == "recipe"]
    assert names() == ("finetune", "mvit", "slowfast", "synthetic", "x3d")
    assert all(name in option.option.help for name in names())


@pytest.mark.parametrize("name", names())
def test_a_shipped_recipe_says_what_it_is_and_where_it_is_from(name: str) -> None:
    file = RecipeFile.named(name)
    assert file.about
    assert file.source
    assert file.values
    recipe = request(recipe=name)
    assert recipe.epochs == file.values["epochs"]
    assert {"learning_rate", "momentum", "weight_decay"}.isdisjoint(file.values) == (name == "synthetic")
    if file.base_batch:
        base = request(recipe=name, batch_size=file.base_batch)
        assert base.learning_rate == file.values["learning_rate"]
        assert request(recipe=name, batch_size=2 * file.base_batch).learning_rate == 2 * base.learning_rate
    rates = [recipe.rate(step, 1000) for step in range(1000)]
    assert max(rates) == pytest.approx(recipe.learning_rate)
    assert rates[-1] < 0.05 * max(rates)


def test_the_recipe_of_the_synthetic_set_is_the_default() -> None:
    assert request(recipe="synthetic") == Recipe()
    for changed in ({"optimizer": "sgd"}, {"optimizer": "lamb", "lr": 0.3}, {"settings": ("optimizer=adamw",)}):
        assert request(recipe="synthetic", **changed) == request(**changed)


@pytest.mark.parametrize("name", names())
def test_the_recipes_whose_sources_do_begin_branches_at_zero(name: str) -> None:
    assert request(recipe=name).zero_init_final_bn == (name in ("slowfast", "x3d"))
    assert not request(recipe=name, settings=("zero_init_final_bn=false",)).zero_init_final_bn


def test_an_optimizer_brings_its_usual_rate_momentum_and_decay() -> None:
    default, sgd, adamw = request(), request(optimizer="sgd"), request(optimizer="adamw")
    assert (default.optimizer, default.learning_rate, default.momentum, default.weight_decay) == (
        "muon",
        0.02,
        0.95,
        0.05,
    )
    assert (sgd.learning_rate, sgd.momentum, sgd.weight_decay) == (0.1, 0.9, 5e-5)
    assert (adamw.learning_rate, adamw.weight_decay) == (1e-3, 0.05)
    given = request(optimizer="sgd", lr=0.3, settings=("momentum=0.5",))
    assert (given.learning_rate, given.momentum, given.weight_decay) == (0.3, 0.5, 5e-5)
    assert request(settings=("optimizer=sgd",)) == sgd
    # that of a file stays
    assert request(recipe="finetune", optimizer="sgd").learning_rate == pytest.approx(5e-4)
    tuned = request(qat=True)
    assert (tuned.optimizer, tuned.learning_rate, tuned.momentum) == ("sgd", 0.01, 0.9)


def test_a_file_leaves_what_it_does_not_name_to_fine_tuning_with_rounding(tmp_path: Path) -> None:
    def tuned(*rows: str, **options: object) -> tuple[object, ...]:
        file = tmp_path / "own.toml"
        file.write_text("\n".join(("schema = 1", *rows)))
        recipe = request(qat=True, recipe=str(file), **options)
        assert request(qat=True, settings=tuple(row.replace('"', "") for row in rows), **options) == recipe
        return recipe.epochs, recipe.optimizer, recipe.learning_rate, recipe.momentum

    assert tuned() == (2, "sgd", 0.01, 0.9)
    assert tuned("epochs = 5") == (5, "sgd", 0.01, 0.9)
    assert tuned("learning_rate = 0.5", epochs=3) == (3, "sgd", 0.5, 0.9)
    assert tuned('optimizer = "adamw"') == (2, "adamw", 0.01, 0.9)
    assert tuned('optimizer = "muon"') == (2, "muon", 0.01, 0.95)
    for name in ("finetune", "mvit", "slowfast", "x3d"):  # which name their rates and lengths
        assert request(qat=True, recipe=name) == request(recipe=name)


def test_options_override_settings_and_these_the_file() -> None:
    recipe = request(recipe="x3d", epochs=3, settings=("epochs=9", "dropout=0.1"), batch_size=16)
    assert (recipe.epochs, recipe.dropout, recipe.precise_bn) == (3, 0.1, 200)
    assert recipe.learning_rate == pytest.approx(0.8 * 16 / 1024)
    assert request(recipe="x3d", lr=0.3).learning_rate == 0.3
    assert request(settings=("seed=4",)).seed == 4
    assert request(settings=("seed=4",), seed=0).seed == 0


def test_the_batch_of_a_file_with_repeats_alone_is_given_beside_it(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text("schema = 1\nrepeats = 3\n")
    recipe = request(recipe=str(file), batch_size=12)
    assert (recipe.repeats, recipe.batch_size) == (3, 12)
    with pytest.raises(InvalidValue, match=r"batch_size must be a multiple of repeats \(3\), got 16"):
        request(recipe=str(file))


def test_dropout_is_not_set_for_fine_tuning_with_rounding(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match="dropout does not go with the rounding of int8; leave it out with --qat"):
        request(qat=True, settings=("dropout=0.6",))
    assert request(qat=True, settings=("dropout=0",)) == request(qat=True)
    file = tmp_path / "own.toml"
    file.write_text("schema = 1\ndropout = 0.5\n")
    assert request(qat=True, recipe=str(file)).dropout == 0.5


def test_the_largest_seed_is_that_of_a_setting(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text(f"schema = 1\nseed = {2**63 - 1}\n")
    assert request(recipe=str(file)) == request(settings=(f"seed={2**63 - 1}",))
    file.write_text(f"schema = 1\nseed = {2**63}\n")
    with pytest.raises(InvalidFile):
        request(recipe=str(file))


def test_every_field_is_read_from_a_file_and_from_a_setting(tmp_path: Path) -> None:
    changed = {
        "schedule": "step",
        "loss": "bce",
        "optimizer": "adamw",
        "precision": "bf16",
        "freeze": "stem",
        "multigrid": "long",
        "decay_at": (0.3, 0.6),
        "transforms": ("flip:0.5", "rand-augment:2,9"),
        "test_crops": 3,
        "sync_bn": True,
        "compile": True,
        "gradient_checkpointing": True,
        "zero_init_final_bn": True,
    }
    for one in fields(Recipe):
        if one.name not in changed:
            changed[one.name] = 7 if isinstance(one.default, int) else 0.625
    file = tmp_path / "all.toml"
    rows = [f"{name} = {_toml(value)}" for name, value in changed.items()]
    file.write_text("\n".join(["schema = 1", *rows]))
    assert RecipeFile.named(str(file)).recipe() == Recipe(**changed)
    assert Recipe(**parse_settings(tuple(f"{name}={_text(value)}" for name, value in changed.items()))) == Recipe(
        **changed
    )
    stored = json.loads(json.dumps(asdict(Recipe(**changed))))
    assert Recipe(**parse_settings(tuple(setting_texts(stored)))) == Recipe(**changed)
    assert setting_texts(asdict(Recipe()) | {"of_tomorrow": 1}) == []


def _toml(value: object) -> str:
    if isinstance(value, tuple):
        return str(list(value))
    return f'"{value}"' if isinstance(value, str) else str(value).lower()


def _text(value: object) -> str:
    separator = ";" if isinstance(value, tuple) and isinstance(value[0], str) else ","
    return separator.join(map(str, value)) if isinstance(value, tuple) else str(value).lower()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("learnig_rate = 0.1", "unknown key 'learnig_rate'; did you mean 'learning_rate'"),
        ("epochs = 0", "epochs must be at least 1"),
        ("repeats = 0", "repeats must be at least 1"),
        ("repeats = 3\nbatch_size = 16", "batch_size must be a multiple of repeats"),
        (f"learning_rate = {10**400}", "a whole number of more than 64 bits"),
        ('epochs = "many"', "epochs: expected a whole number"),
        ("base_batch = 0", "base_batch: expected at least 1"),
        ("compile = 1", "compile: expected true or false"),
        ('optimizer = "sdg"', "unknown optimizer"),
        ('decay_at = "late"', "decay_at: expected a number"),
        ("schema = 2", "cannot be read as TOML"),
    ],
)
def test_a_wrong_file_is_one_clear_error(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "own.toml"
    file.write_text(f"schema = 1\n{text}\n")
    with pytest.raises(InvalidFile, match=words) as error:
        request(recipe=str(file))
    assert str(error.value).startswith(str(file))
    assert "\n" not in str(error.value)


def test_wrong_names_and_settings() -> None:
    with pytest.raises(UnknownName, match=r"unknown recipe 'x3b'; did you mean 'x3d'\?"):
        request(recipe="x3b")
    with pytest.raises(InvalidFile, match=r"missing\.toml"):
        request(recipe="missing.toml")
    with pytest.raises(UnknownName, match=r"a recipe has no 'dropuot'; did you mean 'dropout'\?"):
        request(settings=("dropuot=1",))
    for wrong, words in [
        ("dropout", "expected NAME=VALUE"),
        ("epochs=1.5", "epochs: expected a whole number"),
        (f"epochs={10**400}", "epochs must be a number of at most 9223372036854775807"),
        (f"learning_rate={10**400}", "learning_rate must be more than 0, got inf"),
        ("compile=yes", "compile: expected true or false"),
        ("decay_at=0.1;0.2", "decay_at: expected numbers"),
    ]:
        with pytest.raises(InvalidValue, match=words):
            request(settings=(wrong,))
