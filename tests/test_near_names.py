"""Near matches: whatever is misnamed, the hint has the name that is there, and a mistyped path asks no one outside."""

import json
import re

import pytest
from click.testing import CliRunner
from command_line import fields
from hypothesis import given
from hypothesis import strategies as st

from packer.errors import InputError, UsageError, did_you_mean, near, near_paths
from packer.recipe.recipe import make_recipe
from packer_cli.main import cli

KNOWN = ("mode", "block_len", "overlong", "max_pixels", "align", "pad_id", "seed")


@given(name=st.sampled_from(KNOWN), at=st.integers(0, 12), letter=st.sampled_from("xQ_"))
def test_a_name_with_one_letter_lost_or_added_is_found(name, at, letter):
    for typed in (name[:at] + name[at + 1 :], name[:at] + letter + name[at:]):
        assert name in near(typed, KNOWN) or len(typed) < 5
    assert near(name.upper(), KNOWN) == [name]


def test_names_as_near_as_each_other_are_all_named_and_what_is_far_is_not():
    assert near("llama", ["gpt-2", "llama-2", "llama-3"]) == ["llama-2", "llama-3"]
    assert near("zzz", KNOWN) == near("", KNOWN) == []
    assert did_you_mean([], "look around") == "look around"
    assert did_you_mean("abcd", "") == "did you mean 'a' or 'b' or 'c'?"


def test_trainers_names_of_things_are_answered_with_packers():
    assert near("max_length", KNOWN) == near("--max-seq-length", KNOWN) == ["block_len"]
    assert near("--model", ["--mode", "--tokenizer"]) == ["--tokenizer"]


ARGUMENTS = {"num_workers": "prefetch", "pin_memory": "device", "shuffle": "order", "collate_fn": "batching"}
ARGUMENTS |= {"batch_size": "micro_batch_size", "gloabl_batch_size": "global_batch_size"}


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        *((typed, f"did you mean '{name}'?") for typed, name in ARGUMENTS.items()),
        ("xyzzy", "its arguments: cache, split"),
    ],
)
def test_arguments_of_a_dataloader_and_mistyped_ones_are_answered_with_the_readers(typed, meant):
    pytest.importorskip("torch", reason="TORCH MISSING: the loader is not tested")
    from packer.load import PackedLoader

    with pytest.raises(UsageError, match=f"PackedLoader has no argument '{typed}'") as caught:
        PackedLoader("no cache", **{typed: 1})
    assert caught.value.hint.startswith(meant)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for name in ("models/qwen3", "models/llama-2", "models/llama-3", "data/2024"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "data" / "chats.jsonl").write_text("")
    (tmp_path / "data" / "chat\x1b[2J.jsonl").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("models/qwen", ["models/qwen3"]),
        ("model/qwen", ["models/qwen3"]),
        ("./models/Qwen", ["models/qwen3"]),
        ("models/llama", ["models/llama-2", "models/llama-3"]),
        ("qwen3", ["models/qwen3"]),
        ("dat/*.jsonl", ["data/*.jsonl"]),
        ("data/chat.jsonl", ["data/chats.jsonl"]),
        ("data/*.csv", []),
        ("elsewhere/qwen3", []),
        ("data/../models/qwen", ["data/../models/qwen3"]),
    ],
)
def test_a_path_at_which_there_is_nothing_is_answered_with_those_nearest_to_it(folder, typed, meant):
    assert near_paths(typed) == meant
    assert near_paths(str(folder / typed)) == [str(folder / each) for each in meant] or typed == "qwen3"


def test_a_home_folder_that_no_shell_filled_in_is_named(folder):
    assert near_paths("~/models/qwen3") == [str(folder / "models" / "qwen3")]


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (("build", "first/data/chats.jsonl", "--tokenizer", "first/tokenizer", "-o", "x"), "first/data/chat.jsonl"),
        (("build", "first/dat/*.jsonl", "--tokenizer", "first/tokenizer", "-o", "x"), "first/data/*.jsonl"),
        (("build", "first/data/chat.jsonl", "--tokenizer", "first/tokenise", "-o", "x"), "first/tokenizer"),
        (("build", "-c", "first/recip.yaml", "-o", "x"), "first/recipe.yaml"),
        (("build", "-c", "first", "-o", "x"), "first/recipe.yaml"),
        (("build", "-c", "first/recipe.yaml", "-o", "x", "--set", "pack.blok_len=5"), "block_len"),
        (("build", "-c", "first/recipe.yaml", "-o", "x", "--template", "lama-3"), "llama-3"),
        (("build", "-c", "first/recipe.yaml", "-o", "x", "--max-length", "5"), "--block-len"),
        (("inspect", "first/cach"), "first/cache"),
        (("inspect", "first"), "first/cache"),
        (("inspect", "first/cache", "--row", "chats.jsonl:0"), "data/chat.jsonl"),
        (("inspekt", "first/cache"), "packer inspect"),
        (("explain", "dropped_contents"), "dropped_content"),
    ],
)
def test_every_command_names_what_was_meant(starter, starter_cache, tmp_path, monkeypatch, arguments, meant):
    (tmp_path / "first").symlink_to(starter)
    monkeypatch.chdir(tmp_path)
    if "cach" in " ".join(arguments) or arguments[-1] == "first":
        (tmp_path / "first").unlink()
        (tmp_path / "first").mkdir()
        (tmp_path / "first" / "cache").symlink_to(starter_cache)
    result = CliRunner().invoke(cli, [*arguments, "--json"])
    assert result.exit_code in {UsageError.exit_code, InputError.exit_code}
    assert re.fullmatch(rf"did you mean '(\S*/)?{re.escape(meant)}'\?", json.loads(result.output)["error"]["hint"])


def test_a_mistyped_path_is_not_looked_up_on_the_hub(starter, tmp_path, monkeypatch):
    import packer.pipeline.plan.input_resolution as resolution

    def asked(name):
        raise AssertionError(f"the Hub was asked for {name}")

    monkeypatch.setattr(resolution, "pin", asked)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    for typed in ("models/qwen", "./org/name", "../org/name", "/org/name", "~/org/name", "org/tokenizer.json"):
        rows = starter / "data" / "chat.jsonl"
        found = fields("build", rows, "--tokenizer", typed, "-o", tmp_path / "cache", exit_code=3)
        assert found["error"]["message"] == f"tokenizer {typed.removeprefix('./')}: no such file or folder"
    for typed in ("hf://models/qwen", "models/qwen@main", "org/name"):
        with pytest.raises(AssertionError, match="the Hub was asked"):
            resolution.pin_recipe(make_recipe({"tokenizer": typed}), print)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("pack:\n\tblock_len: 5\n", 2),
        ("sources:\n  - path: a\n   split: b\n", 3),
        ("sources: [{path: a}\npack: {}\n", 2),
        ("a: 1\nb: [\n", 3),
        ("tokenizer: a\nsources:\n  - path: *.jsonl\n", 3),
        ("tokenizer:a/b\nsources: []\n", 2),
        ("filters:\n  - name: x: y\n", 2),
    ],
)
def test_an_error_in_yaml_names_the_file_and_the_line(tmp_path, text, line):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(text)
    found = fields("build", "-c", recipe, "-o", tmp_path / "cache", exit_code=2)["error"]
    assert found["message"].startswith(f"{recipe}: not valid YAML: line {line}: ")
    assert "needs quotes" in found["hint"]


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("sources: a.jsonl", "write a list: sources: [...]"),
        ("supervision: {parts: text}", "write a list: supervision.parts: [...]"),
        ("pack: {block_len: 0}", "packer explain recipe"),
        ("text: {fim: {tokens: [a, b, c]}}", "cut texts before a build"),
        ("sources: [a.jsonl]", "write {path: …}; its keys are path, split,"),
        ("deduplicate: {of: answers}", "did you mean 'deduplicate.near.of'?"),
        ("pack: 512", "its keys are mode, block_len,"),
        ("pack: {block_len: '512'}", "a whole number, without quotes"),
    ],
)
def test_a_value_of_another_type_says_how_it_is_written(tmp_path, text, hint):
    (tmp_path / "recipe.yaml").write_text(text)
    found = fields("build", "-c", tmp_path / "recipe.yaml", "-o", tmp_path / "cache", exit_code=2)["error"]
    assert found["hint"].startswith(hint)
