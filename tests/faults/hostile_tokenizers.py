"""Tokenizer folders made to hang, crash or mislead a build, each with what must become of it.

Faults that loading alone finds, in words, are in tests/model.
"""

import json
import os
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Change = Callable[[Path], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """A change of a good folder, and how the build of it ends."""

    change: Change
    code: int
    says: str
    """Part of the error; of a build that goes well, what its rejections are: code and number."""

    words: tuple[str, ...] = ()
    """Further words of the command."""


def _stored(folder: Path, name: str) -> Any:
    path = folder / name
    return json.loads(path.read_text("utf-8")) if path.exists() else {}


def keys(name: str, **values: Any) -> Change:
    """Set keys of a JSON file."""
    return lambda folder: (folder / name).write_text(json.dumps(_stored(folder, name) | values), "utf-8")


def tokenizer(**values: Any) -> Change:
    return keys("tokenizer.json", **values)


def config(**values: Any) -> Change:
    return keys("tokenizer_config.json", **values)


def generation(**values: Any) -> Change:
    return keys("generation_config.json", **values)


def model(**values: Any) -> Change:
    """Set keys of the model in `tokenizer.json`."""

    def change(folder: Path) -> None:
        stored = _stored(folder, "tokenizer.json")
        (folder / "tokenizer.json").write_text(json.dumps({**stored, "model": stored["model"] | values}), "utf-8")

    return change


def vocabulary(**values: Any) -> Change:
    """Set ids of the vocabulary."""

    def change(folder: Path) -> None:
        stored = _stored(folder, "tokenizer.json")
        stored["model"]["vocab"] |= values
        (folder / "tokenizer.json").write_text(json.dumps(stored), "utf-8")

    return change


def added(**values: Any) -> Change:
    """Add a token that is like the last one but for some values."""

    def change(folder: Path) -> None:
        stored = _stored(folder, "tokenizer.json")
        last = max(token["id"] for token in stored["added_tokens"])
        stored["added_tokens"].append({**stored["added_tokens"][-1], "id": last + 1, **values})
        (folder / "tokenizer.json").write_text(json.dumps(stored), "utf-8")

    return change


def content(name: str, what: bytes) -> Change:
    return lambda folder: (folder / name).write_bytes(what)


def split(pattern: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def cut_by(pattern: str) -> Change:
    """A pre-tokenizer with an expression of one's own before the bytes."""
    by_bytes = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return tokenizer(pre_tokenizer={"type": "Sequence", "pretokenizers": [split(pattern), by_bytes]})


def instead(name: str, make: Callable[[Path], object]) -> Change:
    """Something else in the place of a file."""

    def change(folder: Path) -> None:
        (folder / name).unlink()
        make(folder / name)

    return change


def deep(depth: int) -> str:
    return "[" * depth + "]" * depth


def huge_vocabulary(folder: Path) -> None:
    """More than 200 MB."""
    with (folder / "tokenizer.json").open("w") as file:
        file.write('{"version":"1.0","model":{"type":"BPE","merges":[],"vocab":{')
        file.writelines(f'"token number {number:030}":{number},' for number in range(4_000_000))
        file.write('"end":4000000}}}')


def large_vocabulary(folder: Path) -> None:
    """Nearly as large as is taken."""
    stored = _stored(folder, "tokenizer.json")
    last = max(stored["model"]["vocab"].values())
    stored["added_tokens"] = []
    stored["model"]["vocab"] |= {f"token number {number:040}": last + number for number in range(1, 900_000)}
    (folder / "tokenizer.json").write_text(json.dumps(stored))


class _Opened:
    """What a pickle runs when it is loaded."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, ("WAS_RUN",)


def with_code(folder: Path) -> None:
    """Everything transformers would run or load, each of which leaves a folder behind."""
    (folder / "tokenization_evil.py").write_text("import os\nos.mkdir('WAS_RUN')\n")
    (folder / "__init__.py").write_text("import os\nos.mkdir('WAS_RUN')\n")
    (folder / "sitecustomize.py").write_text("import os\nos.mkdir('WAS_RUN')\n")
    for name in ("tokenizer.pkl", "pytorch_model.bin", "vocab.pickle"):
        (folder / name).write_bytes(pickle.dumps(_Opened()))
    config(
        auto_map={"AutoTokenizer": [None, "tokenization_evil.EvilTokenizer"]},
        tokenizer_class="EvilTokenizer",
        tokenizer_file="/etc/passwd",
    )(folder)


CUT = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
PADDED = {
    "strategy": {"Fixed": 4096}, "direction": "Right", "pad_to_multiple_of": None,
    "pad_id": 0, "pad_type_id": 0, "pad_token": "<|endoftext|>",
}  # fmt: skip
SPECIALS = {
    "type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
    "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
    "special_tokens": {"<s>": {"id": "<s>", "ids": [999_999_999], "tokens": ["<s>"]}},
}
LOADED = "tokenizer.json cannot be loaded"
GOOD = "not_json 2"

FOLDERS: dict[str, Folder] = {
    name: Folder(change=change, code=code, says=says, words=tuple(words))
    for name, change, code, says, *words in (
        ("nothing changed", lambda _: None, 0, GOOD),
        # expressions
        ("split: one that would run away on other texts", cut_by(r"(a+)+$"), 0, GOOD),
        ("split: pieces of no length", tokenizer(pre_tokenizer={"type": "FixedLength", "length": 0}), 3, LOADED),
        ("split: 100,000 brackets", cut_by("(" * 100_000 + ")" * 100_000), 3, LOADED),
        ("split: repetition of repetition", cut_by("(((a{1000}){1000}){1000}){1000}"), 0, GOOD),
        ("split: what is nowhere and everywhere", cut_by(""), 3, "is longer than a block"),
        # ids
        ("id: negative", vocabulary(a=-1), 3, LOADED),
        ("id: two tokens have it", vocabulary(one=4000, two=4000), 3, "the same id 4000"),
        ("id: a gap in the vocabulary", vocabulary(**{"a gap": 9000}), 3, "but tokenizers reads it as"),
        ("eos_token_id: negative", generation(eos_token_id=-1), 3, "eos_token_id -1 is not in its vocabulary"),
        # the file as a whole
        ("200 MB", huge_vocabulary, 3, "tokenizer.json has 2"),
        ("60 MB", large_vocabulary, 3, "eos_token '<|im_end|>' is not in its vocabulary"),
        ("cut off", lambda folder: os.truncate(folder / "tokenizer.json", 20_000), 3, LOADED),
        ("depth 100,000", content("tokenizer.json", b'{"model":' + deep(100_000).encode() + b"}"), 3, LOADED),
        ("depth 100,000 of normalizers", content("tokenizer.json", b'{"normalizer":' + b'{"type":"Sequence","normalizers":[' * 100_000), 3, LOADED),
        ("depth 100,000 under a key nobody knows", lambda folder: (folder / "tokenizer.json").write_text((folder / "tokenizer.json").read_text().replace("{", '{"x":' + deep(100_000) + ",", 1)), 3, LOADED),
        # the model
        ("merges: of tokens that are not there", model(merges=["qqqq zzzz"]), 3, LOADED),
        ("vocabulary: nothing but what is added", model(vocab={}, merges=[]), 3, "but tokenizers reads it as"),
        ("byte fallback without bytes", model(byte_fallback=True), 0, GOOD),
        # settings and parts
        ("truncation to two tokens", tokenizer(truncation=CUT), 0, GOOD),
        ("padding to 4,096 tokens", tokenizer(padding=PADDED), 0, GOOD),
        ("truncation in the configuration", config(truncation_side="left", model_max_length=2, max_length=2), 0, GOOD),
        ("decoder missing", tokenizer(decoder=None), 3, "proof_failed"),
        ("post-processor with an id that is not there", tokenizer(post_processor=SPECIALS), 0, GOOD),
        ("post-processor with an id that is not there, and rows of text", tokenizer(post_processor=SPECIALS), 3, "writes the id 999999999", "--set", "sources=[{path: text.jsonl}]"),
        ("post-processor without the text", tokenizer(post_processor=SPECIALS | {"single": []}), 3, "does not write a text exactly once"),
        ("normalizer that removes everything", tokenizer(normalizer={"type": "Replace", "pattern": {"Regex": "[\\s\\S]"}, "content": ""}), 3, "nothing kept"),
        ("normalizer that writes a control token", tokenizer(normalizer={"type": "Replace", "pattern": {"String": "e"}, "content": "<|im_end|>"}), 3, "nothing kept"),
        ("pre-tokenizer missing", tokenizer(pre_tokenizer=None), 3, "nothing kept"),
        # added tokens
        ("added token: a space", added(content=" ", special=True), 3, "nothing kept"),
        ("added token: a newline", added(content="\n", special=True), 0, GOOD),
        ("added token: takes the space around it", added(content="the", id=1428, lstrip=True, rstrip=True), 0, GOOD),
        ("added token: private use", added(content="\ue0f2\ue200\ue0f3", special=True), 0, GOOD),
        ("added token: NUL", added(content="\0", special=True), 0, GOOD),
        ("added token: half a pair", lambda folder: (folder / "tokenizer.json").write_text((folder / "tokenizer.json").read_text().replace("<|im_end|>", "\\ud800")), 3, LOADED),
        # what lies in its place
        ("a folder", instead("tokenizer.json", Path.mkdir), 3, "tokenizer.json cannot be read: Is a directory"),
        ("a pipe", instead("tokenizer.json", os.mkfifo), 3, "tokenizer.json is not a regular file"),
        ("a device without an end", instead("tokenizer.json", lambda path: path.symlink_to("/dev/zero")), 3, "a link leads out of this folder"),
        ("a link to nowhere", instead("tokenizer.json", lambda path: path.symlink_to("nowhere")), 3, "tokenizer.json cannot be read: No such file"),
        ("a file without permission", lambda folder: (folder / "tokenizer.json").chmod(0), 3, "tokenizer.json cannot be read: Permission denied"),
        ("tokenizer.model alone", lambda folder: (folder / "tokenizer.json").rename(folder / "tokenizer.model"), 3, "tokenizer.model"),
        ("the template is a pipe", instead("chat_template.jinja", os.mkfifo), 3, "chat_template.jinja is not a regular file"),
        # the configuration
        ("configuration: 40 MB", lambda folder: (folder / "tokenizer_config.json").write_text('{"x":"' + "x" * 40_000_000 + '"}'), 3, "tokenizer_config.json has 40000008 bytes"),
        ("configuration: depth 100,000", content("tokenizer_config.json", b'{"x":' + deep(100_000).encode() + b"}"), 3, "tokenizer_config.json is nested too deep"),
        ("configuration: eos_token is a number", config(eos_token=4091), 3, "`int` - at `$.eos_token`"),
        ("configuration: eos_token is half a pair", config(eos_token="\ud800"), 3, "half of a surrogate pair"),
        ("configuration: added_tokens_decoder of 5,000 digits", config(added_tokens_decoder={"9" * 5000: {"content": "a"}}), 3, "added_tokens_decoder"),
        ("configuration: code of its own, pickles, other paths", with_code, 0, GOOD),
        # the template
        ("template: an object of numbers", config(chat_template={"default": 1}), 3, "at `$.chat_template[...]`"),
        ("template: half a pair", config(chat_template="\ud800"), 3, "half of a surrogate pair"),
        ("template: 50 MB", content("chat_template.jinja", b"{{ 1 }}" * 7_000_000), 3, "chat_template.jinja has 49000000 bytes"),
        ("template: 2 MB", content("chat_template.jinja", b"{{ 1 }}" * 300_000), 3, "the chat template 'default' has 2100000 characters"),
        ("template: a device given", lambda _: None, 3, "zero is not a regular file", "--template", "/dev/zero"),
    )
}  # fmt: skip

NEUTRALISED = (
    "truncation to two tokens",
    "truncation in the configuration",
    "padding to 4,096 tokens",
    "post-processor with an id that is not there",
    "configuration: code of its own, pickles, other paths",
)
"""What these ask for is not followed: their caches hold what the cache of the folder nothing was done to holds."""
