"""The starter folder: complete, correct, and a template and tokenizer without traps."""

import functools
import json
import re
from pathlib import Path

import jinja2
import pytest
import train_starter_tokenizer as training
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from packer.errors import StorageError, UsageError
from packer.model.model import load_model
from packer.recipe.recipe import load_recipe
from packer.starter import write_starter

FILES = training.FILES
TOKENIZER = FILES / "tokenizer"
NAMES = ("alpaca", "chat", "reasoning", "sharegpt", "tools")
ROWS = [pytest.param(list(training.starter_rows(name)), id=name) for name in NAMES]


@functools.cache
def compiled():
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)

    def raise_exception(message):
        raise jinja2.TemplateError(message)

    environment.globals["raise_exception"] = raise_exception
    return environment.from_string((TOKENIZER / "chat_template.jinja").read_text("utf-8"))


def render(messages, tools=None, *, prompt=False):
    return compiled().render(messages=messages, tools=tools, add_generation_prompt=prompt)


@pytest.mark.parametrize("exists", [False, True])
def test_the_starter_is_written_whole_and_byte_for_byte(tmp_path, exists):
    folder = tmp_path / "deep" / "first"
    if exists:
        folder.mkdir(parents=True)
    written = write_starter(folder)
    expected = {path.relative_to(FILES): path.read_bytes() for path in FILES.rglob("*") if path.is_file()}
    found = {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert found == expected
    assert written == tuple(sorted(folder / path for path in expected))
    assert [path.name for path in folder.parent.iterdir()] == ["first"]
    assert folder.stat().st_mode & 0o777 == folder.parent.stat().st_mode & 0o777


def test_an_empty_folder_stays_the_same_folder(tmp_path):
    before = tmp_path.stat().st_ino
    write_starter(tmp_path)
    assert tmp_path.stat().st_ino == before


def test_a_folder_that_holds_something_is_refused_and_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"found thesis\.txt") as caught:
        write_starter(tmp_path)
    assert "packer init" in caught.value.hint
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UsageError, match="it is a file"):
        write_starter(tmp_path / "file")


def test_a_disk_that_refuses_is_an_error_and_leaves_no_recipe(tmp_path, monkeypatch):
    write_bytes, calls = Path.write_bytes, []

    def fill_up(path, content):
        calls.append(path)
        if len(calls) == 4:
            raise OSError(28, "No space left on device")
        return write_bytes(path, content)

    monkeypatch.setattr(Path, "write_bytes", fill_up)
    with pytest.raises(StorageError, match="No space left"):
        write_starter(tmp_path / "first")
    assert len(calls) == 4 and not (tmp_path / "first" / "recipe.yaml").exists()


def test_the_recipe_loads_and_everything_it_names_is_there(tmp_path):
    write_starter(tmp_path / "first")
    recipe = load_recipe(tmp_path / "first" / "recipe.yaml")
    assert recipe.pack.block_len == 512
    sources = [(Path(source.path).stem, source.split) for source in recipe.sources]
    learned = ("chat", "tools", "reasoning", "sharegpt")
    assert sources == [*((name, "train") for name in learned), ("alpaca", "eval")]
    assert all(Path(source.path).is_file() for source in recipe.sources)
    model = load_model(Path(recipe.tokenizer))
    assert model.stops == ("<|endoftext|>", "<|im_end|>")
    assert model.content(model.pad_id) == "<|endoftext|>"
    assert model.vocab_size == training.VOCAB_SIZE
    assert sorted(model.control) == sorted(training.SPECIAL)
    assert [token.content for token in model.added_tokens if not token.special] == list(training.ORDINARY)


def test_training_again_gives_the_same_tokenizer():
    assert training.train().to_str() + "\n" == training.TOKENIZER_FILE.read_text("utf-8")


def test_the_readme_states_the_true_numbers_of_rows_and_the_true_broken_lines():
    readme = (FILES / "README.md").read_text("utf-8")
    stated = {name: int(rows) for name, rows in re.findall(r"\| `data/(\w+)\.jsonl` \| (\d+) \|", readme)}
    lines = {name: (FILES / "data" / f"{name}.jsonl").read_text("utf-8").splitlines() for name in NAMES}
    assert stated == {name: len(rows) for name, rows in lines.items()}
    assert sum(stated.values()) == 200

    kept = {name: list(training.starter_rows(name)) for name in NAMES}
    assert {name: len(lines[name]) - len(kept[name]) for name in NAMES} == dict.fromkeys(NAMES, 0) | {"chat": 3}
    broken = [int(number) for number in re.findall(r"^\| (\d+) \|", readme, re.MULTILINE)]
    image, torn, pair = (lines["chat"][number - 1] for number in broken)
    assert json.loads(image)["messages"][0]["content"][1]["type"] == "image_url"
    with pytest.raises(ValueError):
        json.loads(torn)
    assert {"chosen", "rejected"} <= json.loads(pair).keys()


def test_the_samples_hold_the_kinds_a_newcomer_should_see():
    rows = {name: list(training.starter_rows(name)) for name in NAMES}
    calls = [m["tool_calls"] for row in rows["tools"] for m in row["messages"] if m.get("tool_calls")]
    assert {type(call["function"]["arguments"]) for turn in calls for call in turn} == {str, dict}
    assert max(map(len, calls)) == 2
    assert any(len(turn) == 1 for turn in calls)
    every = [message for name in NAMES for row in rows[name] for message in training.as_messages(row)]
    assert {message["role"] for message in every} == {"system", "user", "assistant", "tool"}
    assert sum("reasoning_content" in message for message in every) > 20
    assert len({json.dumps(row) for name in NAMES for row in rows[name]}) == 197
    scripts = "".join(str(message["content"]) for message in every)
    for sign in "äéó中のаعनท한λפ🎉":
        assert sign in scripts


@pytest.mark.parametrize("rows", ROWS)
def test_transformers_renders_and_encodes_the_same(rows):
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoTokenizer.from_pretrained(TOKENIZER)
    ours = Tokenizer.from_file(str(training.TOKENIZER_FILE))
    assert (theirs.eos_token, theirs.pad_token, theirs.bos_token) == ("<|im_end|>", "<|endoftext|>", None)
    assert transformers.GenerationConfig.from_pretrained(TOKENIZER).eos_token_id == [4091, 4089]
    for row in rows:
        messages, tools = training.as_messages(row), row.get("tools")
        text = render(messages, tools)
        assert theirs.apply_chat_template(messages, tools=tools, tokenize=False) == text
        ids = theirs.apply_chat_template(messages, tools=tools, return_dict=False)
        assert ids == ours.encode(text, add_special_tokens=False).ids


def test_a_call_beside_text_and_a_call_alone_are_distinguished():
    call = {"type": "function", "function": {"name": "f", "arguments": {"ä": 1}}}
    block = '<tool_call>\n{"name": "f", "arguments": {"ä": 1}}\n</tool_call>'
    alone = render([{"role": "assistant", "content": None, "tool_calls": [call, call]}])
    assert alone == f"<|im_start|>assistant\n{block}\n{block}<|im_end|>\n"
    beside = render([{"role": "assistant", "content": "One moment.", "tool_calls": [call]}])
    assert beside == f"<|im_start|>assistant\nOne moment.\n{block}<|im_end|>\n"
