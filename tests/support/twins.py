"""Small tokenizers built in code, each the twin of a trap in a well-known real one.

A twin is a function that writes a model folder and returns it: `tokenizer.json`, `tokenizer_config.json`, the chat template
and, where stop ids need it, `generation_config.json`. The tokenizers are trained on :data:`TEXT` and kept for the session,
so a twin costs milliseconds.

    twin                 trap                                                             as in
    byte_level           none; with `bos=True` the post-processor adds a BOS              minimind, Llama 3
    double_newline       two line ends are one id, so a reply that opens with one merges  Qwen, Llama 3
    nfc                  the normalizer composes letters; thinking tags are ordinary      Qwen3
    added_letters        single letters are added tokens; digits stand alone              deepseek-coder
    header_stops         a turn ends with the header of the next one                      GLM-4
    sentencepiece_like   every text between special tokens gets a dummy prefix            Llama 2
    metaspace_first      only the very first text gets it                                 newer conversions of Llama
    swallowing           role tokens take the white space after them                      Phi-3
    line_breaks          line breaks and runs of spaces are added tokens                  Gemma 2 and 3

`base_model` is none of these: it has no template, and no tokens for roles, as gpt-2.
"""

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

TEXT = """\
system user assistant tool observation
Hello! How are you today? I am fine, thank you.
The quick brown fox jumps over the lazy dog, and the dog goes on sleeping.
What is 12 plus 30? The answer is 42, because 12 + 30 = 42.
You are a helpful assistant. Please answer in one sentence.

Think first, then answer the question of the user.

def add(a, b):
    return a + b

Über den Wolken ist es schön. Le café est fermé. ¿Qué tal? Õhtu on ilus.
你好,世界。今天天气很好。 Привет, как дела?
"""

CHATML = r"""{% for message in messages %}
{{ '<|im_start|>' + message.role + '\n' + (message.content or '') + '<|im_end|>\n' }}
{%- endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""
"""Prefix-stable; every turn closed by its own token."""

LLAMA2_LIKE = r"""{% set start = 1 if messages and messages[0].role == 'system' else 0 %}
{% for message in messages[start:] %}
{% if message.role == 'user' %}
{% set system = '<<SYS>>\n' + messages[0].content + '\n<</SYS>>\n\n' if loop.first and start else '' %}
{{ bos_token + '[INST] ' + system + message.content + ' [/INST]' }}
{%- elif message.role == 'assistant' %}
{{ ' ' + message.content + ' ' + eos_token }}
{%- else %}
{{ raise_exception('Only user and assistant messages follow the system message') }}
{%- endif %}
{% endfor %}"""
"""Writes BOS itself, once a turn; no generation prompt: the answer begins with a space right after the question."""

PHI_LIKE = r"""{% for message in messages %}
{{ '<|' + message.role + '|>\n' + message.content + '<|end|>\n' }}
{%- endfor %}
{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}{{ eos_token }}{% endif %}"""
"""Ends whatever is rendered in EOS, so a conversation is not the beginning of its continuation."""

QWEN3_LIKE = r"""{% set last = namespace(user=-1) %}
{% for message in messages %}
{% if message.role == 'user' %}{% set last.user = loop.index0 %}{% endif %}
{% endfor %}
{% for message in messages %}
{% set thoughts = message.reasoning_content or '' %}
{% if message.role == 'assistant' and loop.index0 > last.user and (loop.last or thoughts) %}
{{ '<|im_start|>assistant\n<think>\n' + thoughts + '\n</think>\n\n' + message.content + '<|im_end|>\n' }}
{%- else %}
{{ '<|im_start|>' + message.role + '\n' + (message.content or '') + '<|im_end|>\n' }}
{%- endif %}
{% endfor %}
{% if add_generation_prompt %}
{{ '<|im_start|>assistant\n' }}
{%- if enable_thinking is defined and enable_thinking is false %}{{ '<think>\n\n</think>\n\n' }}{% endif %}
{% endif %}"""
"""Rewrites history: reasoning before the last question is dropped, and the last turn has a block even if it is empty."""

GLM_LIKE = r"""{% for message in messages %}
{{ '<|' + message.role + '|>\n' + message.content }}
{%- endfor %}
{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}"""
"""Writes nothing after a turn; the header of the next message is where generation stops."""

GEMMA_LIKE = r"""{{ bos_token }}{% for message in messages %}
{{ '<start_of_turn>' + ('model' if message.role == 'assistant' else message.role) + '\n' + message.content + '<end_of_turn>\n' }}
{%- endfor %}
{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"""
"""Writes line breaks, which are tokens of their own, around what people say."""

MISTRAL_LIKE = """\
{% set told = messages[0].content if messages[0].role == 'system' else '' %}
{% for message in (messages[1:] if told else messages) %}
{% if message.role == 'user' %}
{{ '<|im_start|>user\\n' + (told + '\\n\\n' if told and loop.last else '') + message.content }}<|im_end|>
{% else %}
{{ '<|im_start|>assistant\\n' + message.content }}<|im_end|>
{% endif %}
{% endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""
"""Writes the system message before the last question, if that is the last message, as Mistral's v3 does."""

NO_TERMINATOR = r"""{% for message in messages %}
{{ message.role + ': ' + message.content + '\n' }}
{%- endfor %}
{% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}"""
"""No token at all says that a turn is over."""

_CHATML_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_NAMES = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
_LLAMA_NAMES = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}

# Line ends in a row stay together, unlike in the pattern built into ByteLevel, which gives the last one to the next word.
_LINE_ENDS_TOGETHER = r" ?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+|\s*[\r\n]+|\s+(?!\S)|\s+"


def byte_level(folder: Path, *, template: str | None = CHATML, bos: bool = False) -> Path:
    """Byte-level BPE without surprises. `bos`: encoding with special tokens puts `<|begin|>` first."""
    return _write(folder, _byte_level(bos), _NAMES | ({"bos_token": "<|begin|>"} if bos else {}), template)


def double_newline(folder: Path, *, template: str | None = CHATML) -> Path:
    """Two line ends are one id: the prompt's last line end merges with a line end the reply opens with."""
    return _write(folder, _double_newline(), _NAMES, template)


def nfc(folder: Path, *, template: str | None = CHATML) -> Path:
    """NFC before anything else: `e` + accent comes back as `é`. `<think>`, `</think>` are added and not special."""
    return _write(folder, _nfc(), _NAMES, template, stops=("<|im_end|>", "<|endoftext|>"))


def added_letters(folder: Path, *, template: str | None = CHATML) -> Path:
    """`ü` and `õ` are added tokens, spelled as they are and not in the byte alphabet; every digit stands alone."""
    return _write(folder, _added_letters(), _NAMES, template)


def header_stops(folder: Path, *, template: str | None = GLM_LIKE) -> Path:
    """Stop ids are the headers of the next message, named only in `generation_config.json`."""
    names = {"eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>"}
    return _write(folder, _header_stops(), names, template, stops=("<|endoftext|>", "<|user|>", "<|observation|>"))


def sentencepiece_like(folder: Path, *, template: str | None = LLAMA2_LIKE) -> Path:
    """Spaces are `▁`, one more is put before every piece of text, unknown letters fall back to bytes, BOS is added."""
    return _write(folder, _sentencepiece_like(), _LLAMA_NAMES, template, inline=True)


def metaspace_first(folder: Path, *, template: str | None = LLAMA2_LIKE) -> Path:
    """As `sentencepiece_like`, but only text at the very start gets the dummy prefix."""
    return _write(folder, _metaspace_first(), _LLAMA_NAMES, template, inline=True)


def swallowing(folder: Path, *, template: str | None = PHI_LIKE) -> Path:
    """As `sentencepiece_like`, and role tokens swallow the white space after them."""
    names = _LLAMA_NAMES | {"eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>"}
    return _write(folder, _swallowing(), names, template, stops=("<|endoftext|>", "<|end|>"), inline=True)


def line_breaks(folder: Path, *, template: str | None = GEMMA_LIKE) -> Path:
    """Line breaks and runs of spaces are added tokens, and no special ones; spaces are `▁`, and none is put before a text."""
    names = {"bos_token": "<bos>", "eos_token": "<eos>", "unk_token": "<unk>", "pad_token": "<pad>"}
    return _write(folder, _line_breaks(), names, template, stops=("<eos>", "<end_of_turn>"))


def base_model(folder: Path, *roles: str) -> Path:
    """As a base model has it: no chat template, one EOS that is the BOS too, and the tokens for `roles`, if any."""
    tokenizer = Tokenizer.from_str(_byte_level_bare())
    _add_special(tokenizer, *roles)
    return _write(folder, tokenizer.to_str(), {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"}, None)


TWINS = (
    byte_level,
    double_newline,
    nfc,
    added_letters,
    header_stops,
    sentencepiece_like,
    metaspace_first,
    swallowing,
    line_breaks,
)


def _write(
    folder: Path,
    tokenizer: str,
    names: Mapping[str, str],
    template: str | None,
    *,
    stops: tuple[str, ...] = (),
    inline: bool = False,
) -> Path:
    """Write the files; `inline` puts the template into the configuration, as folders from before 2025 have it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(tokenizer, "utf-8")
    config: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", **names}
    if template is not None and inline:
        config["chat_template"] = template
    elif template is not None:
        (folder / "chat_template.jinja").write_text(template, "utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(config, ensure_ascii=False), "utf-8")
    if stops:
        ids = {"eos_token_id": _ids(tokenizer, stops)}
        (folder / "generation_config.json").write_text(json.dumps(ids), "utf-8")
    return folder


@functools.cache
def _ids(tokenizer: str, contents: tuple[str, ...]) -> list[int]:
    backend = Tokenizer.from_str(tokenizer)
    return [backend.token_to_id(content) for content in contents]


@functools.cache
def _byte_level_bare() -> str:
    tokenizer = _train_byte_level([pre_tokenizers.ByteLevel(add_prefix_space=False)])
    _add_special(tokenizer, "<|endoftext|>")
    return str(tokenizer.to_str())


@functools.cache
def _byte_level(bos: bool) -> str:
    tokenizer = _train_byte_level([pre_tokenizers.ByteLevel(add_prefix_space=False)])
    _add_special(tokenizer, *_CHATML_TOKENS)
    if bos:
        _add_special(tokenizer, "<|begin|>")
        tokenizer.post_processor = _opening(tokenizer, "<|begin|>")
    return tokenizer.to_str()


@functools.cache
def _double_newline() -> str:
    split = pre_tokenizers.Split(Regex(_LINE_ENDS_TOGETHER), behavior="isolated")
    tokenizer = _train_byte_level([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    _add_special(tokenizer, *_CHATML_TOKENS)
    return tokenizer.to_str()


@functools.cache
def _nfc() -> str:
    tokenizer = Tokenizer.from_str(_double_newline())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.add_tokens([AddedToken(tag, normalized=False, special=False) for tag in ("<think>", "</think>")])
    return tokenizer.to_str()


@functools.cache
def _added_letters() -> str:
    digits = pre_tokenizers.Digits(individual_digits=True)
    tokenizer = _train_byte_level([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    _add_special(tokenizer, *_CHATML_TOKENS)
    tokenizer.add_tokens([AddedToken(letter, normalized=True, special=False) for letter in "üõ"])
    return tokenizer.to_str()


@functools.cache
def _header_stops() -> str:
    tokenizer = _train_byte_level([pre_tokenizers.ByteLevel(add_prefix_space=False)])
    _add_special(tokenizer, "<|endoftext|>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>")
    return tokenizer.to_str()


@functools.cache
def _sentencepiece_like() -> str:
    tokenizer = _train_sentencepiece()
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    return tokenizer.to_str()


@functools.cache
def _metaspace_first() -> str:
    tokenizer = _train_sentencepiece()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first", split=False)
    return tokenizer.to_str()


@functools.cache
def _swallowing() -> str:
    tokenizer = Tokenizer.from_str(_sentencepiece_like())
    _add_special(tokenizer, "<|endoftext|>")
    roles = ("<|system|>", "<|user|>", "<|assistant|>", "<|end|>")
    tokenizer.add_special_tokens([AddedToken(role, normalized=False, special=True, rstrip=True) for role in roles])
    return tokenizer.to_str()


@functools.cache
def _line_breaks() -> str:
    vocabulary, merges = _sentencepiece_model()
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", behavior="merged_with_previous")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    _add_special(tokenizer, "<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>")
    runs = [letter * number for letter in "\n▁" for number in range(1 if letter == "\n" else 2, 5)]
    tokenizer.add_tokens([AddedToken(run, normalized=False, special=False) for run in runs])
    tokenizer.post_processor = _opening(tokenizer, "<bos>")
    return tokenizer.to_str()


def _train_byte_level(pre_tokenizer: list[pre_tokenizers.PreTokenizer]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(pre_tokenizer) if pre_tokenizer[1:] else pre_tokenizer[0]
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=480, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator([TEXT], trainer)
    return tokenizer


@functools.cache
def _sentencepiece_model() -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Vocabulary and merges in SentencePiece's order: unknown, BOS, EOS, 256 bytes, then what was learned.

    The ASCII letters of the text are learned; the others are left to the bytes.
    """
    learner = Tokenizer(models.BPE())
    learner.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always", split=True)
    lines = [line for line in TEXT.splitlines() if line.isascii()]
    learner.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=240, show_progress=False))
    learned = json.loads(learner.to_str())["model"]
    opening = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    vocabulary = {piece: i for i, piece in enumerate([*opening, *sorted(learned["vocab"], key=learned["vocab"].get)])}
    return vocabulary, [(left, right) for left, right in learned["merges"]]


def _train_sentencepiece() -> Tokenizer:
    vocabulary, merges = _sentencepiece_model()
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    _add_special(tokenizer, "<unk>", "<s>", "</s>")
    tokenizer.post_processor = _opening(tokenizer, "<s>")
    return tokenizer


def _add_special(tokenizer: Tokenizer, *contents: str) -> None:
    tokenizer.add_special_tokens([AddedToken(content, normalized=False, special=True) for content in contents])


def _opening(tokenizer: Tokenizer, bos: str) -> processors.TemplateProcessing:
    return processors.TemplateProcessing(
        single=f"{bos} $A", pair=f"{bos} $A {bos} $B", special_tokens=[(bos, tokenizer.token_to_id(bos))]
    )
