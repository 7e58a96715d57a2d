"""A template of the gpt-oss kind: channels, a stop token for answers and one for calls, and another end in history."""

import json
from pathlib import Path

import pytest
import twins
from oracle import Oracle
from supervision_stages import Stages, assistant, call, chat, result, user
from tokenizers import AddedToken, Tokenizer

HARMONY = r"""{%- for m in messages %}
{%- if m.role == 'assistant' %}
{%- if m.thinking and (m.tool_calls or loop.last) %}{{ '<|start|>assistant<|channel|>analysis<|message|>' + m.thinking + '<|end|>' }}{% endif %}
{%- if m.tool_calls %}{{ '<|start|>assistant to=' + m.tool_calls[0].function.name + '<|channel|>commentary json<|message|>' + m.tool_calls[0].function.arguments | tojson + '<|call|>' }}
{%- else %}{{ '<|start|>assistant<|channel|>final<|message|>' + m.content + ('<|return|>' if loop.last else '<|end|>') }}{% endif %}
{%- else %}{{ '<|start|>' + m.role + '<|message|>' + m.content + '<|end|>' }}{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start|>assistant' }}{% endif %}"""

MARKERS = ("<|start|>", "<|end|>", "<|channel|>", "<|message|>", "<|return|>", "<|call|>")

TALK = (
    user("Rain?"),
    assistant(None, thinking="Ask.", tool_calls=[call("look", {"city": "Köln"})]),
    result("wet"),
    assistant("It rains.", thinking="So it does."),
    user("Sure?"),
    assistant("Yes.", thinking="Quite."),
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    twins.byte_level(tmp_path, template=HARMONY)
    backend = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    backend.add_special_tokens([AddedToken(marker, normalized=False, special=True) for marker in MARKERS])
    backend.save(str(tmp_path / "tokenizer.json"))
    config = json.loads((tmp_path / "tokenizer_config.json").read_text("utf-8")) | {"eos_token": "<|return|>"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")
    ids = [backend.token_to_id(stop) for stop in ("<|return|>", "<|call|>")]
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": ids}), "utf-8")
    return tmp_path


def test_an_answer_ends_with_return_and_a_call_with_call(folder: Path) -> None:
    (_, called), (_, answered), (_, sure) = Stages.load(folder).turns(chat(*TALK))
    assert called.startswith("<|channel|>analysis<|message|>Ask.<|end|><|start|>assistant to=look")
    assert called.endswith('{"city": "Köln"}<|call|>')
    assert answered == (
        "<|channel|>analysis<|message|>So it does.<|end|><|start|>assistant<|channel|>final<|message|>It rains.<|return|>"
    )
    assert sure.endswith("Yes.<|return|>")


def test_every_answer_is_learned_in_the_context_it_will_have(folder: Path) -> None:
    """History ends answers with another token and drops their analysis, so that each has a document of its own."""
    stages, oracle = Stages.load(folder), Oracle({p.name: p.read_bytes() for p in folder.iterdir()}, HARMONY)
    row = chat(*TALK)
    (documents,) = stages.outcomes([row])
    assert documents == oracle.documents([message.fields for message in row.messages])
    assert len(documents) == 2
    last, _ = documents[-1]
    ends = [stages.model.content(i) for i in last if i >= stages.model.vocab_size - len(MARKERS)]
    assert ends.count("<|return|>") == 1
    assert "So it does." not in stages.round_trip.decode(last).decode()


@pytest.mark.parametrize("written", ["m.content", "m.content | tojson"])
def test_the_analysis_before_a_call_is_context_until_the_answer(folder: Path, written: str) -> None:
    """A finished answer drops it, whose own prompt has it; results are written as text, or as JSON."""
    template = HARMONY.replace(
        "m.tool_calls or loop.last", "loop.last or (m.tool_calls and messages[-1].role == 'tool')"
    )
    template = template.replace("m.content + '<|end|>' }}{% endif %}", f"({written}) + '<|end|>' }}}}{{% endif %}}")
    (folder / "own.jinja").write_text(template, "utf-8")
    made = Stages.load(folder, "supervision.on_prompt_mismatch=continue", template=folder / "own.jinja")
    row = chat(*TALK[:2], result('{"sky": "wet"}'), TALK[3])
    (_, called), (prompt, answered) = made.turns(row)
    assert called.startswith("<|channel|>analysis<|message|>Ask.<|end|>")
    assert "analysis<|message|>Ask.<|end|>" in prompt
    assert answered.startswith("<|channel|>analysis<|message|>So it does.<|end|>") and "It rains.<|return|>" in answered


@pytest.mark.parametrize(
    ("part", "shown"),
    [
        ("reasoning", [f"<|channel|>analysis<|message|>{said}<|end|>" for said in ("So it does.", "Ask.", "Quite.")]),
        ("text", [f"<|start|>assistant<|channel|>final<|message|>{said}<|return|>" for said in ("It rains.", "Yes.")]),
        ("calls", ['<|start|>assistant to=look<|channel|>commentary json<|message|>{"city": "Köln"}<|call|>']),
    ],
)
def test_headers_of_channels_belong_to_the_part_that_they_open(folder: Path, part: str, shown: list[str]) -> None:
    stages = Stages.load(folder, f"supervision.parts=[{part}]")
    (documents,) = stages.outcomes([chat(*TALK)])
    learned = b"".join(stages.round_trip.decode([each for each in labels if each >= 0]) for _, labels in documents)
    assert learned.decode() == "".join(shown)
