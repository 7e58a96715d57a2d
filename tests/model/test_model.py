"""What packer reads out of a tokenizer folder, and what it says of a folder that contradicts itself."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import twins

from packer.errors import InputError, RecipeError
from packer.model import model as module
from packer.model.backend import load_backend
from packer.model.model import load_model


def change(folder: Path, name: str, **values: Any) -> Path:
    """Set keys of a JSON file in a model folder."""
    path = folder / name
    stored = json.loads(path.read_text("utf-8")) if path.exists() else {}
    path.write_text(json.dumps({**stored, **values}), "utf-8")
    return folder


def change_model(folder: Path, **values: Any) -> Path:
    """Set keys of the model within `tokenizer.json`."""
    model = json.loads((folder / "tokenizer.json").read_text("utf-8"))["model"]
    return change(folder, "tokenizer.json", model={**model, **values})


def add_token(folder: Path, **values: Any) -> Path:
    """Append an added token to `tokenizer.json`: the last one, with other values."""
    added = json.loads((folder / "tokenizer.json").read_text("utf-8"))["added_tokens"]
    return change(folder, "tokenizer.json", added_tokens=[*added, {**added[-1], **values}])


CUT = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
PADDED = {
    "strategy": {"Fixed": 64}, "direction": "Right", "pad_to_multiple_of": None,
    "pad_id": 0, "pad_type_id": 0, "pad_token": "<|endoftext|>",
}  # fmt: skip


def token_id(folder: Path, content: str) -> int:
    found: int | None = load_backend((folder / "tokenizer.json").read_bytes()).token_to_id(content)
    assert found is not None
    return found


def test_stop_ids_are_the_union_of_all_places_that_name_one(tmp_path: Path) -> None:
    folder = change(
        twins.byte_level(tmp_path), "generation_config.json", eos_token_id=token_id(tmp_path, "<|endoftext|>")
    )
    model = load_model(folder, stop=["<|im_start|>"])
    assert model.stop_ids == tuple(sorted(token_id(folder, t) for t in ("<|im_end|>", "<|endoftext|>", "<|im_start|>")))
    assert model.eos_id == token_id(folder, "<|im_end|>")


def test_stops_are_texts_in_the_order_of_their_ids(tmp_path: Path) -> None:
    model = load_model(twins.header_stops(tmp_path))
    assert set(model.stops) == {"<|endoftext|>", "<|user|>", "<|observation|>"}
    assert [token_id(tmp_path, stop) for stop in model.stops] == list(model.stop_ids)


def test_special_tokens_and_stops_are_control_tokens_and_others_are_not(tmp_path: Path) -> None:
    model = load_model(twins.nfc(tmp_path), stop=["!"])
    assert set(model.control) == {"<|endoftext|>", "<|im_start|>", "<|im_end|>", "!"}
    assert all(model.content(i) == content for content, i in model.control.items())


def test_tokens_the_configuration_calls_special_are_control_tokens(tmp_path: Path) -> None:
    folder = twins.nfc(tmp_path)
    think = token_id(folder, "<think>")
    change(folder, "tokenizer_config.json", added_tokens_decoder={str(think): {"content": "<think>", "special": True}})
    assert load_model(folder).control["<think>"] == think


def test_named_tokens_may_be_objects_and_unset_ones_are_no_variables(tmp_path: Path) -> None:
    named = {"eos_token": {"content": "<|endoftext|>"}, "bos_token": None}
    model = load_model(change(twins.byte_level(tmp_path), "tokenizer_config.json", **named))
    assert model.named_tokens["eos_token"] == "<|endoftext|>"
    assert "bos_token" not in model.named_tokens
    assert model.eos_id == token_id(tmp_path, "<|endoftext|>")


@pytest.mark.parametrize(
    ("config", "expected"),
    [({}, "<|endoftext|>"), ({"pad_token": "<|im_start|>"}, "<|im_start|>"), ({"pad_token": None}, "<|im_end|>")],
)
def test_padding_is_the_pad_token_else_the_first_stop(tmp_path: Path, config: dict[str, Any], expected: str) -> None:
    folder = change(twins.byte_level(tmp_path), "tokenizer_config.json", **config)
    assert load_model(folder).pad_id == token_id(folder, expected)


def test_the_recipe_can_name_the_padding_id(tmp_path: Path) -> None:
    folder = twins.byte_level(tmp_path)
    assert load_model(folder, pad_id=3).pad_id == 3
    with pytest.raises(RecipeError, match="vocabulary ends at"):
        load_model(folder, pad_id=10**6)


def test_a_template_file_beats_the_configuration(tmp_path: Path) -> None:
    folder = change(twins.byte_level(tmp_path, template="from the file"), "tokenizer_config.json", chat_template="no")
    assert load_model(folder).template == "from the file"


def test_a_template_that_is_no_file_is_told_the_names_there_are(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="template nothing-like-it: no such file") as error:
        load_model(twins.byte_level(tmp_path), template=Path("nothing-like-it"))
    assert "packer's: chatml, llama-3" in (error.value.hint or "")


def test_a_given_template_beats_the_folders_own(tmp_path: Path) -> None:
    folder = twins.byte_level(tmp_path / "model")
    (folder / "chat_template_tool_use.jinja").write_text("tools", "utf-8")
    (tmp_path / "given.jinja").write_text("given", "utf-8")
    model = load_model(folder, template=tmp_path / "given.jinja")
    assert (model.template, model.tool_template) == ("given", None)
    assert model.files["chat_template.jinja"] == b"given"


@pytest.mark.parametrize(
    "templates",
    [
        [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools"}],
        {"default": "plain", "tool_use": "tools", "rag": "documents"},
        "plain",
    ],
    ids=["list", "object", "a file beside it"],
)
def test_the_default_template_and_the_one_for_tools_are_found_where_transformers_saves_them(
    tmp_path: Path, templates: Any
) -> None:
    folder = change(twins.byte_level(tmp_path, template=None), "tokenizer_config.json", chat_template=templates)
    if templates == "plain":
        (folder / "additional_chat_templates").mkdir()
        (folder / "additional_chat_templates" / "tool_use.jinja").write_text("tools", "utf-8")
    model = load_model(folder)
    assert (model.template, model.tool_template) == ("plain", "tools")


def test_a_model_is_the_same_when_read_from_its_kept_files(tmp_path: Path) -> None:
    original = load_model(twins.sentencepiece_like(tmp_path / "model"))
    (tmp_path / "kept").mkdir()
    for name, content in original.files.items():
        (tmp_path / "kept" / name).write_bytes(content)
    assert load_model(tmp_path / "kept") == original


def test_a_bare_tokenizer_file_is_a_model_without_stops_or_template(tmp_path: Path) -> None:
    model = load_model(twins.byte_level(tmp_path) / "tokenizer.json")
    assert (model.template, model.stop_ids, model.eos_id, model.pad_id) == (None, (), None, 0)


def test_truncation_and_padding_of_the_file_are_not_followed(tmp_path: Path) -> None:
    cases = {"plain": {}, "truncation": {"truncation": CUT}, "padding": {"padding": PADDED}}
    cases["truncation padding"] = cases["padding"] | cases["truncation"]
    for name, settings in cases.items():
        folder = change(twins.byte_level(tmp_path / name), "tokenizer.json", **settings)
        backend = load_backend((folder / "tokenizer.json").read_bytes())
        assert len(backend.encode("The quick brown fox").ids) > 2
        assert backend.encode("").ids == []


# -- what is wrong with a folder -------------------------------------------------------------------------------------------


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file or folder") as raised:
        load_model(tmp_path / "nowhere")
    assert raised.value.hint


def test_a_folder_without_tokenizer_json_says_what_it_holds_and_how_to_get_one(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").touch()
    with pytest.raises(InputError, match=r"no tokenizer\.json.*vocab\.txt") as raised:
        load_model(tmp_path)
    assert raised.value.hint is not None
    assert "save_pretrained" in raised.value.hint


def broken(name: str, content: str | bytes) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        return folder

    return write


def split_by(regex: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}


EMPTY_MODEL = {"type": "BPE", "vocab": {}, "merges": []}

FAULTS: dict[str, tuple[Callable[[Path], Path], str]] = {
    "tokenizer that is no JSON": (broken("tokenizer.json", "{"), r"tokenizer\.json cannot be loaded"),
    "tokenizer that is not UTF-8": (broken("tokenizer.json", b"\xff"), r"tokenizer\.json cannot be loaded"),
    "pointer of Git LFS": (
        broken("tokenizer.json", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"),
        r"tokenizer\.json is a pointer of Git LFS.*\nhint: .*git lfs pull",
    ),
    "regex that does not compile": (
        lambda folder: change(folder, "tokenizer.json", pre_tokenizer=split_by("(")),
        r"tokenizer\.json cannot be loaded: .*parenthesis",
    ),
    "prefix that makes the Rust code panic": (
        lambda folder: change_model(folder, continuing_subword_prefix="####"),
        r"tokenizer\.json cannot be loaded: (range end|byte) index",
    ),
    "table of characters that makes the Rust code panic": (
        lambda folder: change(folder, "tokenizer.json", normalizer={"type": "Precompiled", "precompiled_charsmap": ""}),
        r"tokenizer\.json cannot be loaded: Precompiled",
    ),
    "dropout": (lambda folder: change_model(folder, dropout=0.1), r"has a dropout of 0\.1"),
    "no token at all": (
        lambda folder: change(folder, "tokenizer.json", model={**EMPTY_MODEL}, added_tokens=[]),
        "has no tokens",
    ),
    "id that no table can reach": (
        lambda folder: change_model(folder, vocab={"a": 0, "b": 4_000_000_000}, merges=[]),
        r"has the id 40000000\d\d among \d tokens",
    ),
    "gap before an added token": (
        lambda folder: add_token(folder, id=9999, content="<|late|>"),
        r"gives the added token '<\|late\|>' id 9999, but tokenizers reads it as 483",
    ),
    "added token on another's id": (
        lambda folder: add_token(folder, content="<|twin|>"),
        r"gives the added token '<\|twin\|>' id 482, but tokenizers reads it as 483",
    ),
    "configuration that is no JSON": (
        broken("tokenizer_config.json", "{"),
        r"tokenizer_config\.json is not valid JSON",
    ),
    "generation_config that is no JSON": (
        broken("generation_config.json", "eos"),
        "generation_config.json is not valid",
    ),
    "template that is not UTF-8": (broken("chat_template.jinja", b"\xff"), r"chat_template\.jinja"),
    "unknown eos_token": (
        lambda folder: change(folder, "tokenizer_config.json", eos_token="<|nope|>"),
        "eos_token '<|nope|>' is not in its vocabulary",
    ),
    "eos_token_id beyond the vocabulary": (
        lambda folder: change(folder, "generation_config.json", eos_token_id=[10**6]),
        "eos_token_id 1000000 is not in its vocabulary",
    ),
    "another id in added_tokens_decoder": (
        lambda folder: change(folder, "tokenizer_config.json", added_tokens_decoder={"5": {"content": "<|im_end|>"}}),
        r"gives '<\|im_end\|>' id 5, tokenizer\.json gives it \d+",
    ),
    "added_tokens_decoder that is no mapping of ids": (
        lambda folder: change(folder, "tokenizer_config.json", added_tokens_decoder={"x": {"content": "<|im_end|>"}}),
        "added_tokens_decoder",
    ),
    "list of templates without names": (
        lambda folder: change(folder, "tokenizer_config.json", chat_template=[{"template": "x"}]),
        "chat_template",
    ),
}


MENDABLE = ("dropout", "gap before an added token", "another id in added_tokens_decoder")
"""With a hint how."""


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_a_folder_is_said_in_words(fault: str, tmp_path: Path) -> None:
    damage, message = FAULTS[fault]
    folder = damage(twins.byte_level(tmp_path))
    with pytest.raises(InputError, match=message) as raised:
        load_model(folder)
    assert str(folder) in raised.value.message
    assert raised.value.hint is not None or fault not in MENDABLE


def test_an_added_token_without_text_does_no_harm(tmp_path: Path) -> None:
    plain = load_model(twins.byte_level(tmp_path))
    assert load_model(add_token(tmp_path, content="", id=9999)).control == plain.control


def test_a_person_who_interrupts_the_loading_is_heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: bytes) -> None:
        raise KeyboardInterrupt

    folder = twins.byte_level(tmp_path)
    monkeypatch.setattr(module, "load_backend", interrupted)
    with pytest.raises(KeyboardInterrupt):
        load_model(folder)


def test_a_stop_of_the_recipe_must_be_one_token(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"supervision\.stop '<\|stop\|>'"):
        load_model(twins.byte_level(tmp_path), stop=["<|stop|>"])
