"""Options with a name of their own: each is its key of the recipe, on the command line and in Python, and in hints."""

import ast
import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_line import assert_refused, fields
from hints import settings_in
from hypothesis import given
from hypothesis import strategies as st

import packer
from packer.recipe.named_options import NAMED_OPTIONS, as_option, flow_mapping, in_python, of_one_source
from packer.recipe.recipe import load_recipe, make_recipe, to_json
from packer.store.manifest import read_manifest

NAMES = st.one_of(
    st.sampled_from(
        ["question", "my question", "it's", "a,b", "a=b", "{x}", "null", " pad ", "yes", "messages[].apis"]
    ),
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6),
)
SAME: dict[str, tuple[list[str], Any]] = {
    "columns": (
        ["instruction=my question,output=Answer,note=null", "{instruction: my question, output: Answer, note: null}"],
        {"instruction": "my question", "output": "Answer", "note": None},
    ),
    "roles": (
        ["client=user, agent=assistant", "{client: user, agent: assistant}"],
        {"client": "user", "agent": "assistant"},
    ),
    "limit": (["2"], 2),
    "history": (["last"], "last"),
    "block_len": (["64"], 64),
}
ROWS = {
    "columns": {"my question": "When?", "Answer": "At six, I am told.", "note": "Somebody wrote this down."},
    "roles": {"messages": [{"role": "client", "content": "When?"}, {"role": "agent", "content": "At six."}]},
}
USUAL = {"messages": [{"role": "user", "content": "When?"}, {"role": "assistant", "content": "At six."}]}


@pytest.mark.parametrize("name", NAMED_OPTIONS)
def test_an_option_builds_the_cache_that_its_key_and_its_argument_build(
    name: str, starter: Path, tmp_path: Path
) -> None:
    rows, tokenizer = tmp_path / "rows.jsonl", starter / "tokenizer"
    rows.write_text(3 * (json.dumps(ROWS.get(name, USUAL)) + "\n"))
    texts, value = SAME[name]
    option = NAMED_OPTIONS[name]
    recipe = to_json(make_recipe({"sources": [{"path": str(rows)}], "tokenizer": str(tokenizer)}))
    group, key = option.key.split(".")
    (recipe["sources"][0] if group == "sources" else recipe[group])[key] = value
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    asked = ("build", rows, "--tokenizer", tokenizer)
    by_key = fields("build", "-c", tmp_path / "recipe.yaml", "-o", tmp_path / "key")
    plain = None if name in ROWS else fields(*asked, "-o", tmp_path / "plain")["fingerprint"]
    assert by_key["totals"]["kept"] == (2 if name == "limit" else 3) and by_key["fingerprint"] != plain
    for number, text in enumerate(texts):
        words = (f"--{name.replace('_', '-')}", text)
        assert fields(*asked, *words, "-o", tmp_path / f"option{number}")["fingerprint"] == by_key["fingerprint"]
        assert fields("preview", *asked[1:], *words)["totals"]["rejected"] == {}
    asked_of_python: Any = {"tokenizer": tokenizer, name: value, "progress": False}
    assert packer.build(rows, tmp_path / "python", **asked_of_python).fingerprint == by_key["fingerprint"]
    overridden: Any = {name: value, "progress": False}
    recipe = to_json(make_recipe({"sources": [{"path": str(rows)}], "tokenizer": str(tokenizer)}))
    assert packer.build(recipe, tmp_path / "recipe", **overridden).fingerprint == by_key["fingerprint"]


def test_an_option_goes_before_the_recipe_and_set_before_it(starter: Path, tmp_path: Path) -> None:
    keys = ("--limit", 2, "--block-len", 64, "--set", "pack.block_len=128", "--fail-above", 1)
    built = fields("build", "-c", starter / "recipe.yaml", *keys, "-o", tmp_path / "cache")
    assert built["totals"]["rows"] == 2 * len(load_recipe(starter / "recipe.yaml").sources)
    recipe = read_manifest(tmp_path / "cache").recipe
    assert recipe["pack"]["block_len"] == 128 and {each["limit"] for each in recipe["sources"]} == {2}


@pytest.mark.parametrize(
    ("words", "said", "hint"),
    [
        (["--columns", "instruction"], "--columns instruction: expected FIELD=NAME", "--columns instruction=Question"),
        (["--columns", "a=b,a=c"], "each name once", "for example"),
        (["--columns", "message=id"], "`message`, which is not a field", "did you mean 'messages'?"),
        (["--columns", "prompt=mesages"], "no sampled row has it", "did you mean 'messages'?"),
        (["--columns", "tools=mesages"], "no sampled row has it", "did you mean 'messages'?"),
        (["--columns", "messages=conversations"], "no sampled row has it", "--columns conversations=messages"),
        (["--columns", "{a: b"], "sources.columns", "quotes"),
        (["--roles", "client=usr"], "expected system | developer | user", "did you mean 'user'?"),
        (["--history", "exat"], "expected exact | last | as_rendered", "did you mean 'exact'?"),
        (["--limit", "many"], "sources[0].limit: expected", "packer explain recipe"),
        (["--limit", "0"], "sources[0].limit: expected", "packer explain recipe"),
    ],
)
def test_what_an_option_cannot_mean_is_one_error_with_what_was_meant(
    words: list[str], said: str, hint: str, starter: Path, tmp_path: Path
) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps(USUAL | {"id": "7"}) + "\n")
    code = 3 if "field" in said or "row" in said else 2
    error = fields("preview", rows, "--tokenizer", starter / "tokenizer", *words, exit_code=code)["error"]
    assert said in error["message"] and hint in error["hint"]


def test_an_option_about_sources_needs_one(starter: Path) -> None:
    assert_refused("there are no sources", "preview", "--tokenizer", starter / "tokenizer", "--limit", "3", exit_code=2)


@given(columns=st.dictionaries(NAMES, st.none() | NAMES, max_size=3))
def test_a_hint_names_columns_so_that_a_shell_and_python_read_them_back(columns: dict[str, str | None]) -> None:
    setting = f"sources.columns={flow_mapping(columns)}"
    option = as_option(setting)
    assert shlex.split(option)[0] == "--columns" and len(shlex.split(option)) == 2
    base = {"sources": [{"path": "rows.jsonl"}]}
    assert make_recipe(base, settings_in(option)).sources[0].columns == columns
    python = in_python(f"{option} --set pack.overlong=split reads it; packer build {option}", ["columns"])
    call, _, rest = python.partition(" reads it; ")
    assert rest == f"packer build {option}" or ";" in option
    if ";" not in option:
        assert ast.literal_eval(call.removeprefix("columns=").partition(", pack=")[0]) == columns
        assert call.endswith(", pack={'overlong': 'split'}")


@pytest.mark.parametrize("name", ["--columns x", "--roles", "my --columns x", "my --columns 'x", "--set sources.x"])
def test_a_field_that_is_called_like_an_option_is_none(name: str) -> None:
    hint = f"if `{name}` is what the system says, --schema rated"
    assert of_one_source(hint, 1, []) == hint.replace("--schema rated", "--set 'sources[1].schema=rated'")
    assert in_python(f"`{name}` is left out (--schema rated)", ["schema"]) == f"`{name}` is left out (schema='rated')"
