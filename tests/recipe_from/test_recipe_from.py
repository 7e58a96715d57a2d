"""Configurations of axolotl and LLaMA-Factory as recipes: what is carried over builds, and the rest is told."""

import errno
import json
import operator
import os
from pathlib import Path

import click.testing
import jinja2.sandbox
import pytest
import yaml
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from packer.errors import RecipeError, StorageError, UsageError
from packer.pipeline.from_python import build
from packer.recipe.recipe import load_recipe, make_recipe
from packer.recipe_from import read_config, write_recipe
from packer_cli.main import cli

CHAT = {"type": "chat_template"}
PACKED = {"sample_packing": True, "sequence_len": 512}


def convert(config, *, name="config.yaml"):
    Path(name).parent.mkdir(exist_ok=True)
    Path(name).write_text(json.dumps(config) if name.endswith("json") else yaml.safe_dump(config), "utf-8")
    return read_config(Path(name), Path("out"))


def axolotl(*entries, **keys):
    datasets = [{"path": "data/chat.jsonl", **CHAT, **entry} for entry in entries or [{}]]
    return convert({"base_model": "tokenizer", "datasets": datasets, **keys})


def llamafactory(entry=None, columns=None, **keys):
    """A training over one data set, whose entry is Alpaca's unless it says otherwise."""
    rows = {"file_name": "alpaca.jsonl", **(entry or {}), **({"columns": columns} if columns is not None else {})}
    Path("info").mkdir(exist_ok=True)
    Path("info/dataset_info.json").write_text(json.dumps({"rows": rows}))
    for file in Path("data").iterdir():
        if not (Path("info") / file.name).exists():
            (Path("info") / file.name).symlink_to(file.resolve())
    config = {"stage": "sft", "model_name_or_path": "tokenizer", "dataset": "rows", "dataset_dir": "info"}
    return convert(config | keys)


def told(converted):
    """What is not carried over: keys, and entries with the reason."""
    return dict.fromkeys(converted.left) | converted.left_out


def documents_of(recipe, folder):
    return build(recipe, folder, jobs=1, fail_above=1).manifest.content_fingerprint


def test_an_axolotl_config_builds_what_a_recipe_written_by_hand_builds(place):
    config = """
        base_model: tokenizer
        datasets:
          - {path: data/chat.jsonl, type: chat_template, message_property_mappings: {role: role, content: content}}
          - path: data/sharegpt.jsonl
            type: chat_template
            field_messages: conversations
            message_property_mappings: {role: from, content: value}
            roles_to_train: [assistant]
            train_on_eos: turn
          - {path: data/alpaca.jsonl, type: alpaca}
        test_datasets: [{path: data/tools.jsonl, type: chat_template, split: test}]
        sequence_len: 256
        sample_packing: true
        min_sample_len: 20
        val_set_size: 0.05
    """
    converted = convert(yaml.safe_load(config))
    unread = {"datasets[1].roles_to_train", "datasets[1].train_on_eos", "test_datasets[0].split"}
    assert set(told(converted)) == {"min_sample_len", "val_set_size"} | unread
    write_recipe(converted, Path("out"))
    sources = [{"path": f"data/{name}.jsonl"} for name in ("chat", "sharegpt", "alpaca")]
    sources.append({"path": "data/tools.jsonl", "split": "eval"})
    by_hand = {"sources": sources, "tokenizer": "tokenizer", "pack": {"block_len": 256}}
    found = documents_of(load_recipe("out/recipe.yaml"), Path("a"))
    assert found == documents_of(make_recipe(by_hand), Path("b"))


def test_a_llamafactory_config_builds_what_a_recipe_written_by_hand_builds(place):
    rows = [{"q": f"What is {n} + {n}?", "more": "", "a": f"It is {2 * n}."} for n in range(40)]
    turns = [[{"role": "user", "content": row["q"]}, {"role": "assistant", "content": row["a"]}] for row in rows]
    chat_tags = {"role_tag": "role", "content_tag": "content", "user_tag": "user", "assistant_tag": "assistant"}
    chats = {"formatting": "sharegpt", "columns": {"messages": "talk"}, "tags": chat_tags}
    info = {
        "questions": {"file_name": "questions.json", "columns": {"prompt": "q", "query": "more", "response": "a"}},
        "chats": {"file_name": "chats.json", **chats},
        "unasked": {"file_name": "nowhere.json"},
    }
    files = {"questions": rows, "chats": [{"talk": each * 2} for each in turns], "dataset_info": info}
    (place / "lists").mkdir()
    for name, values in files.items():
        (place / "lists" / f"{name}.json").write_text(json.dumps(values, indent="\t"))
    config = """
        model_name_or_path: tokenizer
        stage: sft
        dataset: questions, chats
        eval_dataset: questions
        dataset_dir: lists
        template: qwen3
        cutoff_len: 128
        neat_packing: true
        mask_history: true
        max_samples: 25
        learning_rate: 1.0e-4
    """
    converted = convert(yaml.safe_load(config))
    assert set(told(converted)) == {"template", "mask_history", "max_samples", "learning_rate"}
    write_recipe(converted, Path("out"))
    questions = {"path": "lists/questions.json", "columns": {"instruction": "q", "input": "more", "output": "a"}}
    talks = {"path": "lists/chats.json", "columns": {"messages": "talk"}}
    by_hand = {"sources": [questions, talks, {**questions, "split": "validation"}], "tokenizer": "tokenizer"}
    by_hand["pack"] = {"block_len": 128, "overlong": "truncate_right"}
    found = documents_of(load_recipe("out/recipe.yaml"), Path("a"))
    assert found == documents_of(make_recipe(by_hand), Path("b"))


def test_senders_with_other_names_become_roles_of_the_source(place):
    """The rows need no change: a source says which role is which."""

    def said(role, text):
        return {"from": role, "value": text}

    Path("chats.json").write_text(json.dumps([{"conversations": [said("client", "1?"), said("agent", "yes")]}]))
    tags = {"user_tag": "client", "assistant_tag": "agent", "system_tag": "system", "function_tag": "call"}
    entry = {"formatting": "sharegpt", "tags": tags}
    Path("dataset_info.json").write_text(json.dumps({"chats": {"file_name": "chats.json", **entry}}))
    mapping = {"role": "from", "content": "value"}
    roles = {"user": ["client", "human"], "assistant": ["agent"]}
    chat = {"path": "chats.json", "type": "chat_template", "field_messages": "conversations"}
    for number, (config, notes) in enumerate(
        [
            ({"dataset": "chats", "dataset_dir": "."}, {"chats.tags.function_tag"}),
            ({"datasets": [{**chat, "message_property_mappings": mapping, "roles": roles}], "sequence_len": 64}, set()),
        ]
    ):
        converted = convert({**config, "base_model" if "datasets" in config else "model_name_or_path": "tokenizer"})
        assert {key for key in told(converted) if "." in key} == notes
        assert converted.values["sources"][0]["roles"] == {"client": "user", "agent": "assistant"}
        write_recipe(converted, Path(f"out{number}"))
        totals = build(load_recipe(f"out{number}/recipe.yaml"), Path(f"cache{number}"), jobs=1).manifest.totals
        assert (totals.rows, totals.kept) == (1, 1)


# Every key is answered for.

TEXTS = st.none() | st.sampled_from(["", "train", "text", "turn", "all", "tokenizer_default", "data/chat.jsonl"])
LISTS = st.none() | st.lists(st.sampled_from(["assistant", "user", "<|end|>"]), max_size=2)
VALUES = st.one_of(TEXTS, LISTS, st.booleans(), st.integers(0, 4096))
UNKNOWN = st.dictionaries(st.text("abcdefgh_", min_size=3, max_size=12), VALUES, max_size=3)


def keys_of(names, values=TEXTS):
    """Some of these keys."""
    return st.fixed_dictionaries({}, optional=dict.fromkeys(names.split(), values))


def some_of(names, values):
    return st.dictionaries(st.sampled_from(names.split()), st.sampled_from(values))


# Keys that packer knows, and some that it does not: the others are as unknown as any.
AXOLOTL = keys_of("base_model tokenizer_config revision_of_model chat_template chat_template_jinja")
NAMES = "message_field_role message_field_content field field_messages field_tools text_column"
ENTRY = st.builds(
    operator.or_,
    keys_of(f"{NAMES} split ds_type revision chat_template field_chosen"),
    keys_of("roles_to_train data_files", LISTS),
)
KINDS = ["chat_template", "sharegpt.load_guanaco", "alpaca", "alpaca:chat", "completion", "input_output", "new"]
TYPES = st.sampled_from([*KINDS, "", None]) | some_of("field_instruction field_output format else", ["x"])
INNER = some_of("role content tool_calls else", ["role", "from", "x"])
ROLES = some_of("user system else", [["human"], ["x"]])
LLAMAFACTORY = st.builds(
    operator.or_, keys_of("model_name_or_path model_revision"), keys_of("template packing neat_packing", VALUES)
)
COLUMNS = some_of("prompt query messages tools images else", ["x"])
TAGS = some_of("role_tag content_tag user_tag else", ["role", "from", "x"])


def paths_of(values, where=""):
    """Every key of a configuration, as a path; of mappings within, theirs too."""
    for key, value in values.items():
        yield f"{where}{key}"
        if key in ("message_property_mappings", "roles", "columns", "tags", "type") and isinstance(value, dict):
            yield from paths_of(value, f"{where}{key}.")
        if isinstance(value, list) and key in ("datasets", "test_datasets"):
            for i, entry in enumerate(value):
                yield from paths_of(entry, f"{where}{key}[{i}].")


@pytest.fixture(scope="module")
def config_file(tmp_path_factory):
    return tmp_path_factory.mktemp("keys") / "config.json"


def unanswered(paths, converted):
    """Those of the keys of which nothing is known; what is below a key that is told, or beside one for which an entry
    is left out, is told with it.
    """
    notes = told(converted)
    assert not {*converted.carried} & notes.keys()
    whole = tuple(f"{key}." for key in notes)
    return [path for path in paths if path not in {*converted.carried, *notes} and not path.startswith(whole)]


@given(top=AXOLOTL, others=UNKNOWN, entry=ENTRY, more=UNKNOWN, kind=TYPES, mapped=INNER, roles=ROLES)
def test_every_key_of_an_axolotl_config_is_carried_over_or_reported(
    config_file, top, others, entry, more, kind, mapped, roles
):
    below = {name: values for name, values in (("message_property_mappings", mapped), ("roles", roles)) if values}
    entry = {**more, **entry, **below, "path": "hf://datasets/org/name", "type": kind}
    config = {**others, **top, **PACKED, "datasets": [entry, {"path": "org/name", "type": "completion"}]}
    config_file.write_text(json.dumps(config))
    assert unanswered(paths_of(config), read_config(config_file, config_file.parent)) == []


@given(
    top=LLAMAFACTORY,
    others=UNKNOWN,
    entry=keys_of("subset split folder script_url"),
    more=UNKNOWN,
    columns=COLUMNS,
    tags=TAGS,
    formatting=st.sampled_from(["alpaca", "sharegpt", "openai", "new"]),
)
def test_every_key_of_a_llamafactory_config_is_carried_over_or_reported(
    config_file, top, others, entry, more, columns, tags, formatting
):
    folder = config_file.parent
    (folder / "rows.json").write_text("[]")
    below = {name: values for name, values in (("columns", columns), ("tags", tags)) if values}
    entry = {**more, **entry, "file_name": "rows.json", "formatting": formatting, **below}
    (folder / "dataset_info.json").write_text(json.dumps({"a": entry, "b": {"file_name": "rows.json"}}))
    config = {**others, **top, "dataset": ["a", "b"], "dataset_dir": str(folder), "stage": "sft"}
    config_file.write_text(json.dumps(config))
    assert unanswered([*paths_of(config), *paths_of(entry, "a.")], read_config(config_file, folder)) == []


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"base_model": 7}, "base_model: expected a text, found 7"),
        (
            {"datasets": [{"path": "data/chat.jsonl", **CHAT, "roles": ["user"]}]},
            r"datasets\[0\].roles: expected a mapping",
        ),
        ({"datasets": [{"path": ["data/chat.jsonl"]}]}, r"datasets\[0\].path: expected a text"),
        ({"datasets": ["data/chat.jsonl"]}, "datasets: expected a list of mappings"),
        ({"sequence_len": "long"}, "as a recipe: pack.block_len"),
    ],
)
def test_a_value_that_means_nothing_is_an_error_that_names_its_key(place, config, said):
    with pytest.raises(RecipeError, match=said):
        convert({"datasets": [{"path": "data/chat.jsonl", **CHAT}], **PACKED, **config})


@pytest.mark.parametrize(
    "entry",
    [
        {"formatting": "sharegpt", "columns": {"messages": "messages", "images": "images"}},
        {"ranking": True, "columns": {"chosen": "chosen", "rejected": "rejected"}},
        {"formatting": "sharegpt", "columns": {"messages": "messages", "kto_tag": "label"}},
    ],
)
def test_pictures_and_preference_data_are_left_out_and_what_is_beside_them_is_not(place, entry):
    info = {"rows": {"file_name": "data/alpaca.jsonl"}, "others": {"file_name": "data/chat.jsonl", **entry}}
    Path("dataset_info.json").write_text(json.dumps(info))
    found = convert({"dataset": "rows,others", "dataset_dir": ".", "model_name_or_path": "tokenizer"})
    assert found.left_out.keys() == {"others"}
    assert [source["path"] for source in found.values["sources"]] == ["../data/alpaca.jsonl"]


def test_a_column_has_packers_name_of_it_if_it_has_another(place):
    columns = {"prompt": "q", "query": "input", "response": "reasoning", "tools": "functions"}
    (source,) = llamafactory(columns=columns).values["sources"]
    assert source["columns"] == {"instruction": "q", "output": "reasoning", "tools": "functions"}


def test_a_prompt_type_of_the_users_own_names_its_columns(place):
    own = {"field_instruction": "q", "field_output": "a", "field_system": "s", "format": "{instruction}"}
    found = axolotl({"type": own}, **PACKED)
    assert found.values["sources"][0]["columns"] == {"instruction": "q", "output": "a", "system": "s"}
    assert "datasets[0].type.format" in found.left


def test_a_template_in_a_file_is_named_and_one_in_the_config_is_listed(place):
    found = axolotl(chat_template="jinja", chat_template_jinja="{{ messages[0].content }}", **PACKED)
    assert "template" not in found.values and found.left["chat_template_jinja"] == '"{{ messages[0].content }}"'
    found = axolotl({"chat_template_jinja": "{{ 1 }}"}, chat_template_jinja="tokenizer/chat_template.jinja", **PACKED)
    assert found.values["template"] == {"file": "../tokenizer/chat_template.jinja"}
    assert "datasets[0].chat_template_jinja" in found.left


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("chatml", "<s><|im_start|>user\n 1? <|im_end|>\n<|im_start|>assistant\none<|im_end|>\n<|im_start|>assistant\n"),
        ("llama3", "<s><|start_header_id|>user<|end_header_id|>\n\n1?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\none<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"),
        ("gemma", "<s><start_of_turn>user\n1?<end_of_turn>\n<start_of_turn>model\none<end_of_turn>\n<start_of_turn>model\n"),
    ],
)  # fmt: skip
def test_templates_of_axolotls_own_that_packer_can_name_write_what_axolotls_write(place, name, expected):
    """The expected texts are what axolotl 0.19 renders, but for the BOS before its `chatml`."""
    found = axolotl(chat_template=name, **PACKED)
    assert "chat_template" in found.carried
    write_recipe(found, Path("out"))
    text = load_recipe("out/recipe.yaml").template.path.read_text()
    messages = [{"role": "user", "content": " 1? "}, {"role": "assistant", "content": "one"}]
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    rendered = environment.from_string(text).render(messages=messages, bos_token="<s>", add_generation_prompt=True)
    assert rendered == expected


def test_files_data_sets_buckets_and_names_on_the_hub_become_paths_and_folders_are_left_out(place):
    Path("parts").mkdir()
    Path("saved").mkdir()
    Path("saved/dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    entries = [
        {"path": "saved", "split": "train"},
        {"path": str(place / "data" / "tools.jsonl")},
        {"path": "org/name", "data_files": ["a.jsonl", "b/*.parquet"], "revision": "v1"},
        {"path": "json", "data_files": "data/chat.jsonl"},
        {"path": "later.jsonl"},
        {"path": "s3://there/rows.jsonl"},
        {"path": "parts"},
        {"path": "https://there/rows.jsonl"},
    ]
    found = axolotl(*entries, **PACKED)
    assert [source["path"] for source in found.values["sources"]] == [
        "../saved", str(place / "data" / "tools.jsonl"),
        "hf://datasets/org/name@v1/a.jsonl", "hf://datasets/org/name@v1/b/*.parquet", "../data/chat.jsonl",
        "../later.jsonl", "s3://there/rows.jsonl",
    ]  # fmt: skip
    assert found.left_out.keys() == {"datasets[6]", "datasets[7]"} and "parts/*.jsonl" in found.left_out["datasets[6]"]


def test_the_recipe_says_in_comments_what_it_does_not_carry_and_loads_as_what_it_does(place):
    found = axolotl(adapter="lora", val_set_size=0.5, my_role="blue", **PACKED)
    write_recipe(found, Path("out"))
    text = Path("out/recipe.yaml").read_text()
    assert '# Not carried over:\n#   adapter: "lora"\n' in text
    assert "#   val_set_size: 0.5\n" in text and '#   my_role: "blue"\n' in text
    assert yaml.safe_load(text) == {"version": 1, **found.values}
    with pytest.raises(UsageError, match="already exists"):
        write_recipe(found, Path("out"))
    assert Path("out/recipe.yaml").read_text() == text and len(list(Path("out").iterdir())) == 1


@pytest.mark.parametrize(
    ("text", "name", "said"),
    [
        (None, "c.yaml", "c.yaml: no such file"),
        ("a: [1", "c.yaml", "not valid YAML"),
        ('{"a": {"file_name": 1}, "a": {}}', "c.json", "duplicate key 'a'"),
        ("- a\n", "c.yaml", "expected a mapping of keys, found list"),
        ("model: x\n", "c.yaml", "expected a configuration of axolotl .* found model"),
        ("", "c.yaml", "found no keys"),
        ("sources: [{path: a.jsonl}]", "c.yaml", "is a recipe of packer already"),
        ("a: 1\nb: [\n", "c.yaml", "c.yaml: not valid YAML: line 3: "),
        ("datasets: []\nseed: &a [*a]", "c.yaml", "contains itself"),
        ("a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(f"{new}: &{new} [{', '.join([f'*{old}'] * 10)}]\n" for old, new in zip("abcdef", "bcdefg", strict=True)), "c.yaml", "too many values"),
        (f"datasets: []\nsequence_len: {'9' * 5000}", "c.yaml", "not valid YAML: .*5000 digits"),
        (f"datasets: []\nsequence_len: 0x{'f' * 5000}", "c.yaml", "is too large"),
        (f"datasets: []\nsequence_len: {'9' * 300}", "c.yaml", "contains no rows that packer reads"),
        ('datasets: []\nchat_template_jinja: "{{ x\\ud800 }}"', "c.yaml", r"x\\ud800 }}.* is not UTF-8"),
        ('{"datasets": [], "seed\\ud800": 1}', "c.json", r"seed\\ud800.* is not UTF-8"),
        ("datasets: rows", "c.yaml", "datasets: expected a list"),
        ("datasets: []", "c.yaml", "contains no rows that packer reads"),
        ("rl: dpo\ndatasets: [{path: a/b, type: chatml}]", "c.yaml", "(?s)rl: .*hint: .*recognizes pairs"),
        ("stage: dpo\ndataset: a", "c.yaml", "(?s)stage: .*hint: .*recognizes pairs"),
        ("stage: pt\ndataset: a", "c.yaml", "(?s)stage: .*hint: .*--schema text"),
        ("pretraining_dataset: a/b", "c.yaml", "(?s)pretraining_dataset: .*hint: .*--schema text"),
        ("dataset: a\ndataset_dir: nowhere", "c.yaml", "dataset_dir: nowhere: no dataset_info.json there"),
        ("dataset: other\ndataset_dir: .", "c.yaml", "dataset 'other': not in dataset_info.json"),
        *((f"dataset: a{i}\ndataset_dir: .", "c.yaml", f"dataset 'a{i}': expected a mapping .* found") for i in range(4)),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_a_recipe_is_an_error_that_says_why(place, text, name, said):
    rows = {"file_name": "data/alpaca.jsonl"}
    Path("dataset_info.json").write_text(json.dumps({"rows": rows, "a0": [1], "a1": "text", "a2": None, "a3": 7}))
    if text is not None:
        Path(name).write_text(text)
    with pytest.raises(UsageError, match=said):
        read_config(Path(name), Path("out"))
    result = CliRunner().invoke(cli, ["init", "out", "--from", name, "-v"])
    assert result.exit_code == 2 and not Path("out").exists() and "Traceback" not in result.stderr


def test_a_file_that_is_no_regular_one_or_too_large_is_not_read(place):
    os.mkfifo("pipe")
    with Path("large.yaml").open("wb") as file:
        file.truncate(2**40)
    for name, said in (("/dev/zero", "not a regular"), ("pipe", "not a regular"), ("data", "is a folder"), ("large.yaml", "cannot be read")):  # fmt: skip
        result = CliRunner().invoke(cli, ["init", "out", "--from", name])
        assert result.exit_code == 2 and said in result.stderr


def test_a_recipe_is_written_where_files_have_one_name_alone_and_nothing_is_left_where_the_disk_refuses(
    place, monkeypatch
):
    def refused(*_args, **_kwargs):
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    write_recipe(axolotl(**PACKED), Path("out"))
    assert [path.name for path in Path("out").iterdir()] == ["recipe.yaml"]
    monkeypatch.setattr(os, "fsync", refused)
    with pytest.raises(StorageError):
        write_recipe(axolotl(**PACKED), Path("out2"))
    assert list(Path("out2").iterdir()) == []


def test_a_terminal_gets_what_is_reported_in_lines_of_its_width_and_a_pipe_a_line_each(place, monkeypatch):
    config = {"datasets": [{"path": "data/chat.jsonl", **CHAT, "shards": 4}], "val_set_size": 0.1, **PACKED}
    keys = {f"key_number_{i}": 1 for i in range(30)}
    Path("c.json").write_text(json.dumps({**config, **keys, "two\nlines\x1b": 1}))
    piped = CliRunner().invoke(cli, ["init", "a", "--from", "c.json", "-v"], env={"COLUMNS": "60"}).stdout.splitlines()
    assert sum("key_number" in line for line in piped) == 1 and any("two\\nlines\\x1b" in line for line in piped)
    monkeypatch.setattr(click.testing._NamedTextIOWrapper, "isatty", lambda _: True)
    drawn = CliRunner().invoke(cli, ["init", "b", "--from", "c.json", "-v"], env={"COLUMNS": "60"}).stdout.splitlines()
    assert drawn[-1].startswith("next: packer build")  # a command is for copying, and stays whole
    assert max(map(len, drawn[:-1])) <= 60 < max(map(len, piped))
    assert " ".join(" ".join(drawn).split()) == " ".join(" ".join(piped).replace(" a/", " b/").split())


def test_several_names_of_entries_may_stand_with_commas_between_them_and_a_wrong_one_is_corrected(place):
    entries = {f"entry_number_{i}": {"file_name": f"{i}.jsonl"} for i in range(40)}
    Path("info").mkdir()
    for entry in entries.values():
        (Path("info") / entry["file_name"]).touch()
    Path("info/dataset_info.json").write_text(json.dumps(entries))
    config = {"dataset_dir": "info", "model_name_or_path": "tokenizer"}
    found = convert({**config, "dataset": ["entry_number_7, entry_number_1", "entry_number_3"]})
    assert [source["path"] for source in found.values["sources"]] == [f"../info/{i}.jsonl" for i in (7, 1, 3)]
    with pytest.raises(RecipeError) as error:
        convert({**config, "dataset": "entry_nubmer_11"})
    assert error.value.hint == "did you mean 'entry_number_11'?"
    with pytest.raises(RecipeError) as error:
        convert({**config, "dataset": "something else"})
    *listed, last = error.value.hint.removeprefix("it has ").split(", ")
    assert listed and {*listed} <= {*entries} and last == "…"


def test_yaml_that_repeats_itself_by_anchors_and_values_json_has_no_word_for_are_read(place):
    Path("c.yaml").write_text(
        "chat: &chat {type: chat_template, shards: 2}\n"
        "datasets:\n  - {<<: *chat, path: data/chat.jsonl}\n  - {<<: *chat, path: data/tools.jsonl, shards: 3}\n"
        "sample_packing: true\nsequence_len: 256\nwhen: 2024-01-01\nsome: !!set {a, b}\nbytes: !!binary aGk=\nmuch: .inf\n"
    )
    result = CliRunner().invoke(cli, ["init", "out", "--from", "c.yaml", "--json"])
    assert result.exit_code == 0, result.output
    left = json.loads(result.stdout)["left"]
    assert (left["datasets[0].shards"], left["datasets[1].shards"]) == ("2", "3")
    assert {"chat", "when", "some", "bytes", "much"} < set(left)
    assert len(load_recipe("out/recipe.yaml").sources) == 2


def test_many_data_sets_that_are_left_out_take_linear_work(place):
    """Comparing each with all others would take minutes."""
    info = {f"d{number}": {"script_url": "x", "columns": {"images": "x"}} for number in range(5_000)}
    Path("dataset_info.json").write_text(json.dumps(info | {"rows": {"hf_hub_url": "org/name"}}))
    found = convert({"dataset": [*info, "rows"], "dataset_dir": "."})
    assert [*found.left_out] == [*info] and [source["path"] for source in found.values["sources"]]
