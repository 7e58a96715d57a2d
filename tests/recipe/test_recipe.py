"""The recipe: what is wrong with it is told by its key, with what may stand there."""

import json
import re
from functools import partial
from pathlib import Path
from typing import Literal, get_args, get_origin, get_type_hints

import msgspec
import pytest

from packer.errors import RecipeError
from packer.pipeline.identity import Provenance
from packer.recipe.recipe import SCHEMA_CHOICES, Recipe, load_recipe, make_recipe, to_json
from packer.store.manifest import ModelFile, ModelRecord


def chosen_words() -> list[tuple[str, tuple[str, ...]]]:
    """Every key of a recipe that has one of some words, with the words."""
    found: list[tuple[str, tuple[str, ...]]] = []

    def look(kind: type, prefix: str) -> None:
        for name, hint in get_type_hints(kind).items():
            for part in (hint, *get_args(hint)):
                if isinstance(part, type) and issubclass(part, msgspec.Struct):
                    look(part, f"{prefix}{name}.{'x.' * (get_origin(hint) is dict)}")
                elif get_origin(part) is Literal:
                    found.append((f"{prefix}{name}", get_args(part)))

    look(Recipe, "")
    return found


WORDS = [(key, words) for key, words in chosen_words() if key not in {"version", "filters.of"}] + [
    ("sources.schema", SCHEMA_CHOICES)
]


def test_every_key_with_a_choice_is_examined() -> None:
    keys = {key for key, _ in WORDS}
    assert keys > {"engine", "pack.mode", "sources.format", "supervision.allow_dropped", "supervision.history_rewrite"}
    assert len(WORDS) > 10


@pytest.mark.parametrize(("key", "words"), WORDS, ids=[key for key, _ in WORDS])
def test_a_word_that_may_not_stand_there_is_reported_with_those_that_may(key: str, words: tuple[str, ...]) -> None:
    value = {"supervision.allow_dropped": "[wrong]", "sources.roles": "{a: wrong}"}.get(key, "wrong")
    values = {"sources": [{"path": "a.jsonl", "take": {"rows": 1}}], "split": {"shares": {"test": 0.1}}}
    values["read"] = {"batching": "padded"}
    with pytest.raises(RecipeError) as caught:
        make_recipe(values, [f"{key}={value}"])
    place = key.replace("sources.", "sources[0].").replace("_columns.x.", "_columns[...].")
    place += {"supervision.allow_dropped": "[0]", "sources.roles": "[...]"}.get(key, "")
    assert caught.value.message == f"recipe: {place}: expected {' | '.join(words)}, found 'wrong'"
    make_recipe(values, [f"{key}={value.replace('wrong', words[-1])}"])


def test_another_version_of_recipes_is_reported_with_the_one_there_is() -> None:
    with pytest.raises(RecipeError, match="version: expected 1, found 2"):
        make_recipe({"version": 2})


@pytest.mark.parametrize("text", ["sources: 5", "sources: [5]", "decontaminate: {against: 5}", "template: 5"])
def test_a_file_with_a_value_in_the_place_of_a_list_or_mapping_is_refused_by_its_key(tmp_path: Path, text: str) -> None:
    (tmp_path / "recipe.yaml").write_text(text)
    with pytest.raises(RecipeError, match=f"{text.partition(':')[0]}.*: expected"):
        load_recipe(tmp_path / "recipe.yaml")


@pytest.mark.parametrize(
    "size", ["9" * 5000 + "KiB", "9" * 5000, "٣MiB", "-5MiB", "1e309MiB"], ids=lambda size: size[-9:]
)
def test_a_size_that_is_none_or_is_beyond_every_number_is_refused_by_its_key(size: str) -> None:
    with pytest.raises(RecipeError, match="shard_bytes: expected a size such as 64MiB"):
        make_recipe({"shard_bytes": size})


def test_mappings_for_a_template_have_one_order():
    """A manifest keeps none, and a template may write them."""
    both = {"b": [{"d": 1, "c": 2}], "a": 2}, {"a": 2, "b": [{"c": 2, "d": 1}]}
    one, other = (make_recipe({"template": {"kwargs": {"x": kwargs}}}) for kwargs in both)
    assert repr(one) == repr(other) and list(one.template.kwargs["x"]) == ["a", "b"]


def test_keys_that_came_later_change_nothing_where_they_are_not_set() -> None:
    """Manifests and fingerprints of recipes without them are those of before there were such keys."""
    recipe = make_recipe({"sources": [{"path": "a.jsonl"}], "tokenizer": "t", "engine": "reference"})
    files = (ModelFile(path="model/tokenizer.json", num_bytes=1, sha256="0" * 64),)
    model = ModelRecord(files=files, vocab_size=1, pad_id=0, eos_id=None, stop_ids=(), control_ids=())

    made_by = partial(Provenance, engine="reference", engine_version="1", rules_version=5, model=model, inputs=())
    fingerprint = "314dd31c8aa3bcb22e3e3a133bed4b1463d03e80a721711766dd7ea5e8572dd5"
    assert made_by(recipe=recipe).recipe_fingerprint == fingerprint
    assert not re.search('"(name|call_ids|wrapped|roles|read)"', json.dumps(to_json(recipe)))
    for key in (
        "template.name=plain",
        "rows.call_ids=short",
        "rows.wrapped=unwrap",
        "sources.roles={client: user}",
        "read.batching=padded",
    ):
        later = make_recipe(to_json(recipe), [key])
        assert to_json(later) != to_json(recipe) and make_recipe(to_json(later)) == later
    short = make_recipe(to_json(recipe), ["rows.call_ids=short"])
    assert made_by(recipe=short).documents_identity != made_by(recipe=recipe).documents_identity


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({"batching": "padding_free", "side": "left"}, "read.side: batching 'padding_free' pads no documents"),
        ({"multiple_of": 8}, "read.multiple_of: batching 'packed' pads no documents"),
        ({"batching": "padded", "multiple_of": 8, "length": 64}, "both read.length and read.multiple_of"),
        ({"batching": "padded", "length": 0}, "read.length: expected `int` >= 1"),
        ({"batching": "padded", "length": 2**20 + 1}, "read.length: expected `int` <= 1048576"),
        ({"batching": "token_budget", "multiple_of": 2**30}, "read.multiple_of: expected `int` <= 1048576"),
    ],
)
def test_rules_for_the_reader_that_mean_nothing_together_are_refused(rules: dict[str, object], message: str) -> None:
    with pytest.raises(RecipeError, match=re.escape(message)):
        make_recipe({"read": rules})


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("pack={block_len: 100, align: 16}", "does not divide pack.block_len 100"),
        ("pack={mode: stream, align: 16}", "pack.align: in mode 'stream'"),
        ("pack={mode: stream, overlong: split}", "pack.overlong: a stream is cut"),
        ("template.date=2026-99-99", "template.date"),
        ("template.kwargs={[1]: 2}", "not valid YAML"),
        ("template.kwargs=&a {x: *a}", "contains itself"),
        ("pack.group_documents=99999999999999999999999", "group_documents|too large"),
    ],
)
def test_a_value_that_no_key_can_have_is_refused(override: str, said: str) -> None:
    with pytest.raises(RecipeError, match=said) as caught:
        make_recipe({}, [override])
    assert caught.value.hint


def test_a_name_that_is_not_text_is_refused() -> None:
    with pytest.raises(RecipeError, match="is not UTF-8"):
        make_recipe({"tokenizer": "a\udcff"})


@pytest.mark.parametrize("key", ["max_bytes", "max_render_bytes"])
def test_the_limit_of_a_row_has_a_limit(key: str) -> None:
    """A recipe may come from anybody, and a row is held whole."""
    assert getattr(make_recipe({"rows": {key: "1GiB"}}).rows, key) == 2**30
    with pytest.raises(RecipeError, match=rf"rows\.{key}: expected `int` <= {2**30}"):
        make_recipe({"rows": {key: 2**30 + 1}})


@pytest.mark.parametrize(
    ("override", "hint"),
    [
        ("block_len=5", "did you mean 'pack.block_len'?"),
        ("seed=5", "did you mean 'split.seed' or 'pack.seed'?"),
        ("pack.history_rewrite=last", "did you mean 'supervision.history_rewrite'?"),
        ("pack.blocklen=5", "did you mean 'block_len'?"),
    ],
)
def test_a_key_without_its_group_is_found(override, hint):
    with pytest.raises(RecipeError) as error:
        make_recipe({}, [override])
    assert error.value.hint == hint
