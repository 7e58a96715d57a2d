"""Templates published since, with reasoning in every form that rows have: trained in their own markers, or refused."""

from pathlib import Path

import pytest
import twins
from search_effort import IS_DEEP
from supervision_stages import Stages

from packer.source.schema import read_row

pytestmark = pytest.mark.real

NEWER = (
    *("Kimi-K3", "google-gemma-4-12B-it", "muse-glimmer", "upstage-Solar-Open-100B"),
    *("LFM2.5-8B-A1B", "MiniMax-M2", "poolside-Laguna-XS-2.1", "poolside-Laguna-XS.2"),
    "deepseek-ai-DeepSeek-V4-Flash-0731",
)
"""Those of the first line show reasoning in markers that no row has inline, those of the second in `<think>`."""

SWITCHED = (
    *("llamacpp__Qwen-Qwen3-0.6B", "llamacpp__Qwen3.5-4B", "llamacpp__GLM-4.6", "llamacpp__Cohere2MoE"),
    *("llamacpp__deepseek-ai-DeepSeek-V3.1", "llamacpp__deepseek-ai-DeepSeek-V3.2"),
    *("mistralcommon__v13_think", "mistralcommon__v15_image_think"),
)
"""Those of the other tests whose prompts have a mode for reasoning."""


@pytest.fixture(scope="session")
def cases(real: Path) -> Path:
    folder = real.parent / "cases"
    if not folder.is_dir():
        pytest.skip(f"{folder} is not there")
    return folder


def stages(folder: Path, template: Path, *overrides: str) -> Stages:
    """Under a tokenizer that knows none of the stop tokens: turns are closed by EOS."""
    source = template.read_text("utf-8")
    model = twins.byte_level(folder / f"model{len([*folder.iterdir()])}", template=source)
    return Stages.load(model, "supervision.no_terminator=append", *overrides)


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
    templates = [cases / "templates" / f"{name}.jinja" for name in NEWER]
    templates += [real / "templates" / f"{name}.jinja" for name in SWITCHED]
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
