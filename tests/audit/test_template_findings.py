"""What a preview finds out about a template: each finding where a small template earns it, and only there."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import twins
from chats import chat
from hints import settings_in

from packer.audit import TEMPLATE_CODES
from packer.audit.preview import Preview, preview
from packer.errors import PackerError
from packer.recipe.recipe import make_recipe

FULL = r"""{%- if tools %}{{ '<|im_start|>tools\n' + tools | tojson + '<|im_end|>\n' }}{% endif %}
{%- for m in messages %}
{{- '<|im_start|>' + m.role + '\n' }}
{%- if m.reasoning_content %}{{ '<think>\n' + m.reasoning_content + '\n</think>\n' }}{% endif %}
{{- m.content or '' }}
{%- for call in m.tool_calls or [] %}{{ '\n' + call.function | tojson }}{% endfor %}
{{- '<|im_end|>' }}
{{- '\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""
"""Renders everything a row can say, and changes nothing of it."""

CONTENT = "{{- m.content or '' }}"
Folder = Callable[..., Path]


def changed(old: str, new: str, template: str = FULL) -> str:
    assert template.count(old) == 1
    return template.replace(old, new)


def of(folder: Path, *overrides: str, sources: list[dict[str, str]] | None = None, rows: int = 200) -> Preview:
    values: dict[str, Any] = {"tokenizer": str(folder), "sources": sources or []}
    return preview(make_recipe(values, overrides), rows=rows)


def codes(found: Preview) -> list[str]:
    return [finding.code for finding in found.findings]


def byte_level(template: str | None, **options: Any) -> Folder:
    return lambda folder: twins.byte_level(folder, template=template, **options)


EMPTY_REASONING = changed("{%- if m.reasoning_content %}{{ '<think>\\n' + m.reasoning_content", "{%- if m.role == 'assistant' %}{{ '<think>\\n' + (m.reasoning_content or '')")  # fmt: skip


def configured(twin: Folder, **values: str) -> Folder:
    def write(folder: Path) -> Path:
        twin(folder)
        config = folder / "tokenizer_config.json"
        config.write_text(json.dumps(json.loads(config.read_text()) | values))
        return folder

    return write


ANSWERS = changed(CONTENT, "{{- 'Answer: ' if m.role == 'assistant' }}{{- m.content or '' }}")
CASES: dict[str, Folder] = {
    "tokenizer_read_otherwise": configured(twins.sentencepiece_like, tokenizer_class="LlamaTokenizer"),
    "opening_learned": byte_level(ANSWERS),
}


@pytest.mark.parametrize("code", TEMPLATE_CODES)
def test_a_template_that_earns_a_finding_gets_it_and_keeps_its_chat(code: str, tmp_path: Path) -> None:
    found = of(CASES[code](tmp_path / "tokenizer"))
    assert code in codes(found), codes(found)
    assert len(set(codes(found))) == len(codes(found)), "a code is told twice"
    assert (found.totals.kept, found.inputs) == (1, ())


def test_a_template_that_renders_everything_as_it_is_gets_no_finding(tmp_path: Path) -> None:
    assert codes(of(twins.byte_level(tmp_path / "tokenizer", template=FULL))) == []


def test_of_a_row_that_is_asked_for_nothing_else_is_said(tmp_path: Path) -> None:
    folder = byte_level(ANSWERS)(tmp_path / "tokenizer")
    (source,) = write(tmp_path / "long.jsonl", chat("Hi", "Hello", "And?", "Fine"))
    recipe = make_recipe({"tokenizer": str(folder), "sources": [source]})
    assert codes(preview(recipe, row=(source["path"], 0))) == []


# -- what a finding shows and says -----------------------------------------------------------------------------------------


def test_an_empty_reasoning_block_that_is_learned_is_a_warning(tmp_path: Path) -> None:
    (learned,) = (each for each in of(byte_level(EMPTY_REASONING)(tmp_path)).findings if each.code == "opening_learned")
    places = [each.text[slice(*each.mark)] for each in learned.examples if each.mark is not None]
    assert (places, learned.level) == (["<think>\n\n</think>\n"], "warning")


@pytest.mark.parametrize("twin", [twins.byte_level, twins.metaspace_first])
def test_a_class_that_changes_nothing_is_no_finding(twin: Folder, tmp_path: Path) -> None:
    """A byte-level file is left alone; one that says what transformers would put there is read as it is."""
    found = of(configured(twin, tokenizer_class="LlamaTokenizer")(tmp_path))
    assert "tokenizer_read_otherwise" not in codes(found)


# -- the plain chat --------------------------------------------------------------------------------------------------------


def test_a_plain_answer_that_only_a_prompt_for_reasoning_fits_is_built_as_a_build_does(tmp_path: Path) -> None:
    """As Gemma 4: the default prompt closes the reasoning, and no finished answer has the empty block."""
    asks = "{{ '<|im_start|>system\\nReason.<|im_end|>\\n' if thinking }}" + twins.CHATML
    template = asks.replace(
        "<|im_start|>assistant\\n' }}", "<|im_start|>assistant\\n' + ('' if thinking else '<think></think>') }}"
    )
    folder = twins.byte_level(tmp_path / "tokenizer", template=template)
    assert of(folder).totals.kept == 1
    (row,) = of(folder, "supervision.on_prompt_mismatch=refuse").rows
    assert [each.text[slice(*each.mark)] for each in row.excerpts if each.mark is not None] == ["<think></think>", ""]
    assert row.hint is not None and "supervision.on_prompt_mismatch=continue" in settings_in(row.hint)


def test_a_variable_the_template_misses_is_named_with_what_gives_it(tmp_path: Path) -> None:
    folder = twins.byte_level(tmp_path / "tokenizer", template="{{- 'rules: ' + rules }}" + FULL)
    (row,) = of(folder).rows
    assert "'rules' is undefined" in row.view.rejected[0].reason
    assert row.hint == "give the template a rules in template.kwargs, or in a row's chat_template_kwargs"
    assert of(folder, 'template.kwargs.rules=""').totals.kept == 1


@pytest.mark.parametrize(
    ("template", "said"),
    [
        (None, "need a chat template, but the tokenizer has none"),
        (
            changed("<|im_start|>tools", "<|tools|>").replace("'<|im_start|>' + m.role", "'<|' + m.role + '|>'"),
            "splits",
        ),
        ("{% for %}", "chat template: "),
    ],
)
def test_a_template_that_a_build_refuses_is_refused(template: str | None, said: str, tmp_path: Path) -> None:
    twins.byte_level(tmp_path, template=template)
    with pytest.raises(PackerError) as refused:
        of(tmp_path)
    assert said in refused.value.message and refused.value.hint
    for override in settings_in(refused.value.hint):
        assert of(tmp_path, override).rows


# -- rows ------------------------------------------------------------------------------------------------------------------


def write(path: Path, *rows: Any) -> list[dict[str, str]]:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return [{"path": str(path)}]


def test_rows_that_use_no_template_get_no_findings(tmp_path: Path) -> None:
    folder = byte_level(ANSWERS)(tmp_path / "tokenizer")
    sources = write(tmp_path / "rows.jsonl", {"input_ids": [5, 6, 7], "labels": [-100, 6, 7]})
    assert codes(of(folder, sources=sources)) == []
    sources += write(tmp_path / "chats.jsonl", chat("Hi", "Hello"))
    assert codes(of(folder, sources=sources)) == ["opening_learned"]


def test_rows_of_a_template_that_takes_only_parts_are_kept(tmp_path: Path) -> None:
    template = twins.QWEN3_LIKE.replace("message.content", "message.content[0].text")
    folder = byte_level(template)(tmp_path / "tokenizer")
    assert of(folder, sources=write(tmp_path / "rows.jsonl", *[chat("Hi", "Hello")] * 3)).totals.kept == 3
