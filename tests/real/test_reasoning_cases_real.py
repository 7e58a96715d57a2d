"""Templates published since, with reasoning in every form that rows have: trained in their own markers, or refused."""

import json
from pathlib import Path
from typing import Any

import pytest
import twins
from search_effort import IS_DEEP, one_in
from supervision_stages import Stages

from packer.source.schema import read_row

pytestmark = pytest.mark.real

CHANNELS = ("Kimi-K3", "google-gemma-4-12B-it", "muse-glimmer", "upstage-Solar-Open-100B")
"""Those that show reasoning in markers of which none is a tag that rows have inline."""

SWITCHED = ("Qwen-Qwen3-0.6B", "Qwen3.5-4B", "GLM-4.6", "deepseek-ai-DeepSeek-V3.1", "deepseek-ai-DeepSeek-V3.2")
NEWER_SWITCHED = ("deepseek-ai-DeepSeek-V4-Flash-0731", "google-gemma-4-12B-it", "poolside-Laguna-S-2.1")
"""Those that read `enable_thinking`, DeepSeek's also under another name."""

THINKS = ("LFM2.5-8B-A1B", "MiniMax-M2", "poolside-Laguna-XS-2.1", "poolside-Laguna-XS.2")
"""Those whose own tags are `<think>`, also in the text."""


@pytest.fixture(scope="session")
def cases(real: Path) -> Path:
    folder = real.parent / "cases"
    if not folder.is_dir():
        pytest.skip(f"{folder} is not there")
    return folder


def rows_of(path: Path) -> list[Any]:
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return [read_row(row, number=number, schema="messages", columns={}) for number, row in enumerate(rows)]


def stages(folder: Path, template: Path, *overrides: str) -> Stages:
    """Under a tokenizer that knows none of the stop tokens: turns are closed by EOS."""
    source = template.read_text("utf-8")
    model = twins.byte_level(folder / f"model{len([*folder.iterdir()])}", template=source)
    return Stages.load(model, "supervision.no_terminator=append", *overrides)


def test_inline_tags_are_refused_and_a_field_is_trained_in_the_markers_of_the_template(
    cases: Path, tmp_path: Path
) -> None:
    (inline,) = rows_of(cases / "B08_inline_think_other_markers" / "input.jsonl")
    for name in one_in(2, CHANNELS):
        template = cases / "templates" / f"{name}.jinja"
        ((code, reason),) = stages(tmp_path, template).reasons([inline])
        assert (code, reason.rpartition(" as ")[2]) == ("dropped_reasoning", "part of the answer: <think>")
        ((_, said),) = stages(tmp_path, template, "supervision.reasoning=field").turns(inline)
        assert said.count("Two and two.") == 1
        assert "think>\n" not in said
    for name in one_in(2, THINKS):
        ((prompt, said),) = stages(tmp_path, cases / "templates" / f"{name}.jinja").turns(inline)
        assert "<think>" in (prompt + said)[-200:]


SHAPES = (
    "<think>Count.</think>One.<think>Again.</think>Still one.",
    *("Well.\n<think>Count.</think>\nOne.", "One. <think> it is", "Count.\n</think>\n\nOne.", "One.\n</think>"),
    *("<think depth='2'>Count.</think>One.", "< think >Count.</ think >One."),
    *("[THINK]Count.[/THINK]One.", "<|think|>Count.<|/think|>One.", "&lt;think&gt;Count.&lt;/think&gt;One."),
    "<|channel|>analysis<|message|>Count.<|end|><|start|>assistant<|channel|>final<|message|>One.",
    "<seed:think>Count.</seed:think>One.",
    "<|open|>think<|sep|>Count.<|close|>think<|sep|><|open|>response<|sep|>One.",
)
"""Answers with tags of reasoning that are not, or not only, the block of a family at its beginning."""


RULES = ("refuse", "continue")

CONTROL = {"Kimi-K3": ["<|open|"]}
"""Control tokens of a model's own tokenizer, which rejects rows that have them as text."""


@pytest.mark.parametrize("rule", RULES)
def test_whatever_tags_an_answer_has_it_is_trained_as_its_field_would_be_or_refused(
    cases: Path, real: Path, tmp_path: Path, rule: str
) -> None:
    templates = [cases / "templates" / f"{name}.jinja" for name in (*CHANNELS, *THINKS, *NEWER_SWITCHED[:1])]
    templates += [real / "templates" / f"llamacpp__{name}.jinja" for name in (*SWITCHED, "Cohere2MoE")]
    templates += [real / "templates" / f"mistralcommon__v1{version}_think.jinja" for version in ("3", "5_image")]
    kept = 0
    for template in templates if IS_DEEP else templates[RULES.index(rule) :: 3]:
        made = stages(tmp_path, template, f"supervision.on_prompt_mismatch={rule}")
        asked = {"role": "user", "content": "one?"}
        clean, *others = (
            read_row({"messages": [asked, {"role": "assistant", **turn}]}, number=0, schema="messages", columns={})
            for turn in ({"content": "One.", "reasoning_content": "Count."}, *({"content": text} for text in SHAPES))
        )
        own: tuple[str, str] | None = None
        for row, text in zip(others, SHAPES, strict=True):
            if made.render([row]).rejections or text.partition(">")[0] in CONTROL.get(template.stem, ()):
                continue
            ((prompt, said),) = made.turns(row)
            own = own or made.turns(clean)[0]
            assert (prompt, "".join(said.split())) == (own[0], "".join(own[1].split())), (template.name, text)
            kept += 1
    assert kept > (5 if IS_DEEP else 2)


def test_every_field_of_reasoning_is_trained_where_only_one_is_read(cases: Path, tmp_path: Path) -> None:
    *fields, inline = rows_of(cases / "T_solar_reasoning_key" / "input.jsonl")
    made = stages(tmp_path, cases / "templates" / "upstage-Solar-Open-100B.jinja")
    said = [completion for row in fields for _, completion in made.turns(row)]
    assert len(said) == 3
    assert len({*said}) == 1
    assert said[0].startswith("<|think|>Two and two make four.<|end|><|begin|>assistant<|content|>4<|end|>")
    assert made.outcomes([inline]) == ["dropped_reasoning"]


def test_a_reasoned_answer_asks_for_the_effort_that_reasons(cases: Path, real: Path, tmp_path: Path) -> None:
    rows = rows_of(cases / "T_mistral15_effort_none" / "input.jsonl")
    made = stages(tmp_path, real / "templates" / "mistralcommon__v15_image_think.jinja")
    efforts = [
        prompt.partition('"reasoning_effort": "')[2].partition('"')[0] for row in rows for prompt, _ in made.turns(row)
    ]
    assert efforts == ["high", "none", "high"]


def test_a_row_for_the_mode_without_reasoning_that_has_some_says_so(cases: Path, real: Path, tmp_path: Path) -> None:
    *contradicting, plain = rows_of(cases / "B04_tinker885_nothink_row_with_reasoning" / "input.jsonl")
    templates = [real / "templates" / f"llamacpp__{name}.jinja" for name in SWITCHED]
    templates += [cases / "templates" / f"{name}.jinja" for name in NEWER_SWITCHED]
    for template in one_in(3, templates):
        for rule in ("refuse", "continue"):
            made = stages(tmp_path, template, f"supervision.on_prompt_mismatch={rule}")
            reason = "messages[1]: its reasoning contradicts enable_thinking=false"
            assert made.reasons(contradicting) == [("prompt_diverges", reason)] * 2
        ((prompt, _),) = stages(tmp_path, template, "supervision.on_prompt_mismatch=continue").turns(plain)
        assert not prompt.rstrip().endswith("</think>"), template.name
