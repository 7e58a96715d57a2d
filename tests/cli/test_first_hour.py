"""First hours, as scripts of commands: each error a newcomer meets names a way out, and followed literally it works."""

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
import twins
from command_line import assert_refused, fields, run
from hints import arguments_in, settings_in

import packer
from packer.audit import TEMPLATE_CODES
from packer.audit.explanations import explanations
from packer.errors import InputError
from packer.recipe.named_options import key_values
from packer.recipe.recipe import Recipe, load_recipe, make_recipe
from packer.rejections import CODES
from packer.source.schema import SCHEMAS
from packer.starter import FAMILIES
from packer_cli.main import COMMANDS

FORGETS = """\
{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' }}
{%- if m.role == 'assistant' and loop.last %}{{- '<think>\\n' + (m.reasoning_content or '') + '\\n</think>\\n\\n' }}{% endif %}
{{- m.content + '<|im_end|>\\n' }}{% endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{% endif %}
"""
"""As Qwen3's: reasoning stands before the last answer alone."""


@pytest.fixture
def desk(starter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model in it, where commands are typed."""
    shutil.copytree(starter / "tokenizer", tmp_path / "model")
    shutil.copytree(starter / "data", tmp_path / "data")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def hint_of(error: str) -> str:
    return error.partition("\nhint: ")[2].replace("\n", " ").strip()


def options_of(hint: str) -> list[str]:
    """The first option that a hint names, as it is typed."""
    found = re.search(r"--(?:template|set|roles|history) (?:'[^']*'|[^\s;]+)", hint)
    assert found is not None, hint
    return [" ".join(word.split()) for word in shlex.split(found[0])]


def chats(path: str, num_rows: int = 6, *, turns: int = 3, reasoning: bool = False, **names: str) -> Path:
    """Rows of several turns; `names` gives roles other names."""
    with Path(path).open("w") as file:
        for n in range(num_rows):
            messages = []
            for k in range(turns):
                thought = {"reasoning_content": f"It is {n} and {k}. " * 9} if reasoning else {}
                messages.append({"role": names.get("user", "user"), "content": f"What is {n} plus {k}?"})
                messages.append({"role": names.get("assistant", "assistant"), "content": f"It is {n + k}.", **thought})
            file.write(json.dumps({"messages": messages}) + "\n")
    return Path(path)


def test_roles_of_another_world(desk: Path) -> None:
    rows = chats("rows.jsonl", user="client", assistant="counselor")
    asked = [rows, "--tokenizer", "model"]
    error = run("build", *asked, "-o", "cache", exit_code=3).stderr
    assert "unknown_role" in error
    option = options_of(hint_of(error))
    assert option == ["--roles", "client=user,counselor=assistant"]
    shown = run("preview", *asked, "-n", "1").stdout
    assert options_of(" ".join(shown.partition("hint: ")[2].partition("\n\n")[0].split())) == option
    mine = fields("build", *asked, *option, "-o", "cache")["totals"]
    theirs = fields("build", chats("usual.jsonl"), "--tokenizer", "model", "-o", "usual")["totals"]
    assert mine == theirs and mine["kept"] == 6
    run("verify", "cache", "--sources", "/", "--reencode")
    changed = ["--roles", "client=assistant,counselor=user"]
    assert_refused("roles of rows.jsonl was", "build", *asked, *changed, "-o", "cache", exit_code=2)
    assert "is up to date" in run("build", *asked, *option, "-o", "cache").stdout


def test_the_hints_hold_for_calls_from_python(tmp_path: Path) -> None:
    """Rows of another world under a tokenizer without a template: each error names the argument that ends it."""
    model = twins.base_model(tmp_path / "model")
    said = [{"role": "client", "content": "Hi"}, {"role": "counselor", "content": "Hello"}]
    rows = [{"messages": said}] * 3
    with pytest.raises(InputError) as refused:
        packer.build(rows, tmp_path / "cache", tokenizer=model)
    assert refused.value.hint is not None and "template='plain' fits this tokenizer" in refused.value.hint
    with pytest.raises(InputError) as refused:
        packer.build(rows, tmp_path / "cache", tokenizer=model, template="plain")
    assert refused.value.hint is not None
    said_roles = arguments_in(refused.value.hint)
    result = packer.build(rows, tmp_path / "cache", tokenizer=model, template="plain", **said_roles)
    assert result.manifest is not None and result.manifest.totals.kept == 3


@pytest.mark.parametrize(
    ("row", "ways"),
    [
        ({"question": "How long is a year?", "answer": "365 days."}, "--columns instruction=question,output=answer"),
        ({"instruction": "Hi", "output": "Hello", "persona": "A fisherman from the isle of Mull"}, "--ignore persona"),
        ({"chosen": "\n\nHuman: Hi\n\nAssistant: Hello", "rejected": "\n\nHuman: Hi\n\nAssistant: No"}, ""),
    ],
)
def test_the_template_is_asked_for_together_with_what_else_is_asked(
    row: dict[str, str], ways: str, tmp_path: Path
) -> None:
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    model = twins.base_model(tmp_path / "model")
    asked = ["build", tmp_path / "rows.jsonl", "--tokenizer", model, "-o", tmp_path / "cache"]
    hint = hint_of(run(*asked, exit_code=3).stderr)
    assert ways in hint and "--template plain" in hint
    run(*asked, *ways.split(), "--template", "plain")


def test_a_file_of_wrong_rows_beside_a_right_one_is_reported_first(desk: Path) -> None:
    right, wrong = chats("right.jsonl"), chats("wrong.jsonl", user="client", assistant="counselor")
    asked = [right, wrong, "--tokenizer", "model"]
    told = run("build", *asked, "-o", "cache").stdout
    first, _, rest = told.partition("\n  rows ")
    said = first.replace("\n", " ")
    assert "warning: all 6 rows of wrong.jsonl are rejected: unknown_role:" in said
    assert options_of(said)[1] == "sources[1].roles={client: user, counselor: assistant}" and rest
    again = fields("build", *asked, *options_of(said), "-o", "cache", "--force")["totals"]
    assert again["kept"] == 12


@pytest.mark.parametrize("reasoning", [False, True])
def test_a_template_that_rewrites_history_is_asked_about_in_words(desk: Path, reasoning: bool) -> None:
    Path("forgets.jinja").write_text(FORGETS)
    rows = chats("rows.jsonl", turns=5, reasoning=reasoning)
    asked = [rows, "--tokenizer", "model", "--template", "forgets.jinja"]
    error = run("build", *asked, "-o", "cache", exit_code=2).stderr
    hint = hint_of(error)
    assert "times the tokens" in error
    assert options_of(hint) == ["--history", "as_rendered"]
    shown = " ".join(run("preview", *asked).stderr.split())
    assert "would stop, if other rows are like these" in shown and "--history as_rendered trains" in shown
    assert "would stop" not in run("preview", *asked, "--history", "exact").stderr
    learned = {}
    for each in ("exact", "as_rendered", "last"):
        assert f"--history {each} trains" in hint
        folder = f"cache-{each}"
        built = fields("build", *asked, "--history", each, "-o", folder)
        learned[each] = built["totals"]["trained"]
    assert learned["last"] < learned["as_rendered"] <= learned["exact"]


def test_recipes_of_families_load_and_their_keys_are_the_recipes(tmp_path: Path) -> None:
    for family in FAMILIES:
        folder = tmp_path / family
        told = run("init", folder, "--for", family).stdout
        assert f"wrote {folder}/recipe.yaml for {family}" in told.replace("\n", "")
        recipe = load_recipe(folder / "recipe.yaml")
        assert (recipe == Recipe()) == (family == "llama-3"), "what it says is not the default"
        assert all(len(line) <= 120 for line in (folder / "recipe.yaml").read_text().splitlines())
        assert_refused("expected an empty folder", "init", folder, "--for", family, exit_code=2)
    assert_refused("--from and --for", "init", tmp_path / "x", "--for", "qwen3", "--from", "y", exit_code=2)


def test_the_recipe_of_a_family_builds_what_stopped_without_it(desk: Path) -> None:
    Path("forgets.jinja").write_text(FORGETS)
    asked = [chats("rows.jsonl", turns=5), "--tokenizer", "model", "--template", "forgets.jinja", "-o"]
    run("build", *asked, "cache", exit_code=2)
    run("init", "mine", "--for", "qwen3")
    run("build", "-c", "mine/recipe.yaml", *asked, "cache")


def test_a_keys_explanation_has_each_value_that_it_takes_and_an_example_that_a_recipe_takes() -> None:
    few = re.compile(r"((?:[a-z_]+ (?:\([^)]*\) )?\| )+[a-z_]+)(?::|;| \(|$)")
    explained = {each.name: each for each in explanations() if each.kind == "key of a recipe"}
    assert key_values().keys() <= explained.keys()
    for name, each in explained.items():
        listed = few.match(each.meaning.partition("; by default")[0])
        if listed and name not in ("sources.schema", "sources.format", "sources.roles", "template.name"):
            assert set(re.sub(r" \([^)]*\)", "", listed[1]).split(" | ")) <= each.values.keys(), name
        setting = next(iter(settings_in(each.way_out or "")), None)
        if setting and not setting.endswith("=VALUE"):
            padded = ["read.batching=padded"] if name == "read.side" else []
            make_recipe({"sources": [{"path": "rows.jsonl"}]}, [*padded, setting])


def test_a_value_is_explained_by_the_keys_that_take_it(tmp_path: Path) -> None:
    (found,) = fields("explain", "as_rendered")["explanations"]
    assert found["name"] == "supervision.history_rewrite"
    assert {each["name"] for each in fields("explain", "reject")["explanations"]} > {"pack.overlong", "rows.empty_user"}
    assert "'deduplicate.near'" in fields("explain", "near", exit_code=2)["error"]["hint"]


def test_every_code_is_explained(tmp_path: Path) -> None:
    found = fields("explain")["explanations"]
    explained = {(each["name"], each["meaning"]): each["way_out"] for each in found}
    for code, meaning in (CODES | TEMPLATE_CODES).items():
        assert explained[code, meaning] or code in TEMPLATE_CODES
    said = " ".join(run("explain", "unknown_role").stdout.split())
    assert " ".join(CODES["unknown_role"].split()) in said and "hint: " in said
    keys = {each["name"] for each in found if each["kind"] == "key of a recipe"}
    assert {each["name"] for each in found} - keys == {*CODES, *TEMPLATE_CODES, *SCHEMAS, "recipe"}
    assert len(found) == len(explanations())
    assert {"tokenizer", "sources.schema", "supervision.history_rewrite"} <= keys
    within = {
        "split.shares.validation": ["split"],
        "filters[0].chars.min": ["filters"],
        "media": ["media.images", "media.root", "media.check", "media.keep"],
    }
    for name, expected in within.items():
        assert [each["name"] for each in fields("explain", name)["explanations"]] == expected
    assert_refused("no code, schema, key or command is called", "explain", "split.share", exit_code=2)
    for name in ("supervision.history_rewrite", "history_rewrite", "history", "--history"):
        said = " ".join(run("explain", "--", name).stdout.split())
        assert "exact | last | as_rendered: " in said and "--history exact sets it" in said
    for name, schema in SCHEMAS.items():
        (told,) = [each for each in fields("explain", name)["explanations"] if each["kind"] == "schema of rows"]
        assert told["meaning"] == schema.help and settings_in(told["way_out"]) == [f"sources.schema={name}"]
    for name in COMMANDS:
        (told,) = [each for each in fields("explain", name)["explanations"] if each["kind"] == "command"]
        assert told["meaning"] and COMMANDS[name] in told["way_out"]
    assert "supervision:" in run("explain", "recipe").stdout
    assert_refused("did you mean 'history_rewrite'?", "explain", "histroy_rewrite", exit_code=2)
    assert_refused("packer explain lists them all", "explain", "xyzzy", exit_code=2)


def test_commands_that_are_mistyped_or_none_at_all(tmp_path: Path) -> None:
    assert_refused("the commands: init, preview", "xyzzy", exit_code=2)
    assert_refused("did you mean 'qwen3'?", "init", "x", "--for", "qwen", exit_code=2)
    assert_refused("error: missing option '--to'. Choose from: datasets", "export", "x", "-o", "y", exit_code=2)
    assert_refused("no such option", "-q", "stats", "cache", exit_code=2)
    bare = run()
    assert bare.stdout == run("--help").stdout and bare.stderr == ""
    assert "..." not in bare.stdout.partition("Commands:")[2]  # no line is cut
    for command, example in COMMANDS.items():
        assert f"Example: {example}" in " ".join(run(command, "--help").stdout.split())
        assert example.startswith(f"packer {command}")
