"""Templates by name: under a tokenizer that has their markers each builds chats, and every answer learns its end."""

import re
import shlex
from pathlib import Path

import pytest
import twins
from command_line import run

from packer.audit.preview import preview
from packer.errors import InputError, TemplateError
from packer.named_templates import NAMED_TEMPLATES, template_path
from packer.recipe.recipe import load_recipe, make_recipe

MARKERS = {
    "chatml": ("<|im_start|>", "<|im_end|>"),
    "llama-3": ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
    "gemma": ("<start_of_turn>", "<end_of_turn>"),
    "zephyr": ("<|system|>", "<|user|>", "<|assistant|>"),
    "plain": (),
}
ENDS = {"chatml": "<|im_end|>", "llama-3": "<|eot_id|>", "gemma": "<end_of_turn>"}
"""What ends an answer; the EOS elsewhere."""

SAID = ["Be brief.", "How far is it?", "Not far at all.", "And back?", "As far again."]
"""What these templates have no place for; rows that hold it are rejected."""


def options_in(hint: str) -> list[list[str]]:
    """The options that a hint proposes, by alternatives."""
    alternatives = re.split(r" or |;", hint)
    found = [re.findall(r"--(?:template|set) (?!FILE)(?:'[^']*'|[^\s;,]+)", each) for each in alternatives]
    return [[word for option in options for word in shlex.split(option)] for options in found if options]


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import json

    path = tmp_path_factory.mktemp("rows") / "chat.jsonl"
    roles = ["system", "user", "assistant", "user", "assistant"]
    messages = [{"role": role, "content": text} for role, text in zip(roles, SAID, strict=True)]
    path.write_text("".join(json.dumps({"messages": messages[k:]}) + "\n" for k in (0, 1)))
    return path


def test_all_are_tested() -> None:
    assert {*MARKERS} == {*NAMED_TEMPLATES} == {path.stem for path in template_path("plain").parent.glob("*.jinja")}


@pytest.mark.parametrize("name", MARKERS)
def test_the_hint_of_a_base_model_builds_chats_that_learn_their_end(name: str, rows: Path, tmp_path: Path) -> None:
    """Each template under a tokenizer with its markers: the hint names it, and followed literally it is right."""
    model = twins.base_model(tmp_path / "model", *MARKERS[name])
    error = run("build", rows, "--tokenizer", model, "-o", tmp_path / "none", exit_code=3).stderr
    hint = error.partition("hint: ")[2].replace("\n", " ")
    proposed = [options for options in options_in(hint) if name in options]
    assert len(proposed) == 1, hint
    run("build", rows, "--tokenizer", model, *proposed[0], "-o", tmp_path / "cache")

    overrides = [each for each in proposed[0] if "=" in each]
    values = {"sources": [{"path": str(rows)}], "tokenizer": str(model), "template": {"name": name}}
    recipe = make_recipe(values, overrides)
    found = preview(recipe, rows=2)
    shown = found.rows
    assert len(shown) == 2
    for row in shown:
        (document,) = row.view.documents
        text = "".join(run.text for run in document.runs)
        trained = [run.text for run in document.runs if run.kind == "trained"]
        end = ENDS.get(name, "<|endoftext|>")
        assert trained == [SAID[2] + end, SAID[4] + end]
        assert text.startswith("<|endoftext|>"), "the BOS, once"
        assert all(said in text for said in SAID[1:])
    assert found.findings == ()


def test_what_a_tokenizer_splits_is_not_proposed(rows: Path, tmp_path: Path) -> None:
    model = twins.base_model(tmp_path / "model")
    with pytest.raises(InputError) as refused:
        preview(make_recipe({"tokenizer": str(model)}))
    assert refused.value.hint is not None
    assert options_in(refused.value.hint) == [["--template", "plain"]]
    for name in NAMED_TEMPLATES:
        recipe = make_recipe({"tokenizer": str(model), "template": {"name": name}})
        if name == "plain":
            assert preview(recipe).totals.kept == 1
        else:
            with pytest.raises(TemplateError, match="splits into"):
                preview(recipe)


def test_split_markers_are_letters_and_the_way_out_of_each_error_works(rows: Path, tmp_path: Path) -> None:
    """`chatml` under gpt-2: markers as letters, and the EOS appended, which generation can stop at."""
    model = twins.base_model(tmp_path / "model")
    asked = ["build", rows, "--tokenizer", model, "--template", "chatml", "-o", tmp_path / "cache"]
    refused = run(*asked, exit_code=2).stderr
    assert "splits into" in refused and "--template plain" in refused
    asked += ["--set", "supervision.markers=text"]
    refused = run(*asked, exit_code=3).stderr.replace("\n", " ")
    assert "no_terminator" in refused
    run(*asked, *options_in(refused.partition("hint: ")[2])[0])
    values = {"sources": [{"path": str(rows)}], "tokenizer": str(model), "template": {"name": "chatml"}}
    recipe = make_recipe(values, ["supervision.markers=text", "supervision.no_terminator=append"])
    (shown,) = preview(recipe, rows=1).rows
    *_, document = shown.view.documents
    *_, last = [run for run in document.runs if run.kind == "trained"]
    assert last.text.endswith("<|endoftext|>") and last.num_tokens > len(SAID[4].split())


def test_a_name_and_a_file_are_told_apart(rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model = twins.base_model(tmp_path / "model")
    Path("plain").write_text("{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}")
    asked = ["preview", rows, "--tokenizer", model, "-n", "1"]
    assert "### User:" in run(*asked, "--template", "plain").stdout
    assert "### User:" not in run(*asked, "--template", "./plain").stdout
    both = ["--template", "plain", "--set", "template.file=plain"]
    assert "both template.name and template.file" in run(*asked, *both, exit_code=2).stderr
    unknown = run(*asked, "--set", "template.name=vicuna", exit_code=2).stderr
    assert "expected chatml | llama-3 | gemma | zephyr | plain" in unknown.replace("\n", " ")


def test_a_recipe_keeps_the_name_and_a_cache_its_template(rows: Path, tmp_path: Path) -> None:
    model = twins.base_model(tmp_path / "model")
    cache = tmp_path / "cache"
    run("build", rows, "--tokenizer", model, "--template", "plain", "-o", cache)
    (kept,) = cache.glob("model/*/chat_template.jinja")
    assert kept.read_bytes() == template_path("plain").read_bytes()
    assert "is up to date" in run("build", rows, "--tokenizer", model, "--template", "plain", "-o", cache).stdout
    run("verify", cache, "--sources", "/")
    run("verify", cache, "--sources", "/", "--reencode")
    (tmp_path / "recipe.yaml").write_text("template: {name: plain}\n")
    assert load_recipe(tmp_path / "recipe.yaml").template.path == template_path("plain")
