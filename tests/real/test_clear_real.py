"""Real conversations under every real template: what the fast way renders is what the definition renders."""

import itertools
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from conversation_shapes import SHAPES, sample
from fitted_tokenizers import Fitted, templates
from hypothesis import given, settings
from hypothesis import strategies as st
from rendered_twice import hold
from search_effort import IS_DEEP, one_in
from supervision_stages import chat

from packer.batches import Sample
from packer.source.chat import read

pytestmark = pytest.mark.real

CORPORA = {
    "hh_harmless_test_messages": 6,
    "sgd_train_chat_1800": 3,
    "sgd_train_tools_600": 4,
    "taubench_airline_gpt4o": 3,
    "reason_tool_use_openai_50": 4,
}
AWKWARD = ("</think> so", "<think>\nhm\n</think>\n\nso", " \n", "<|im_end|>", "a [INST] b", "{{ bos_token }}", " x ")
SOME = 12
"""Of the templates `make test` draws from every twelfth: compiling them takes longer than what they render."""


def rows(real: Path, times: int) -> list[Sample]:
    found = []
    for name, number in CORPORA.items():
        with (real / "corpora" / f"{name}.jsonl").open(encoding="utf-8") as lines:
            found += [read(json.loads(line), row) for row, line in enumerate(itertools.islice(lines, number * times))]
    return found


def awkward(real: Path, number: int) -> list[Sample]:
    """Chats of what people and assistants say in the corpora, with awkward words among it."""
    words, made = said(real), []
    for roles in itertools.islice(itertools.cycle((2, 4, 8)), number):
        names = itertools.islice(itertools.cycle(("user", "assistant")), roles)
        made.append(chat(*({"role": name, "content": next(words)} for name in names), row=len(made)))
    return made


def said(real: Path) -> Iterator[str]:
    strange = itertools.cycle(AWKWARD)
    number = 0
    for name in ("sgd_train_chat_1800", "hh_harmless_test_messages"):
        with (real / "corpora" / f"{name}.jsonl").open(encoding="utf-8") as lines:
            for message in (each for line in itertools.islice(lines, 200) for each in json.loads(line)["messages"]):
                number += 1
                yield message["content"] if number % 11 else next(strange)


def taken(names: Sequence[str], samples: Sequence[Sample], fitted: Fitted) -> Counter[str]:
    """How many rows are kept, cut and filled in, each rightly; and under how many templates most are."""
    total: Counter[str] = Counter()
    for name in names:
        found = hold(fitted.stages(name).renderer, samples)
        total += Counter(kept=found.kept, cut=found.cut, filled=found.filled, templates=found.cut > found.kept * 0.5)
    return total


@pytest.mark.parametrize(("times", "every"), [(1, 48), pytest.param(10, 1, marks=pytest.mark.slow)])
def test_every_real_template_is_taken_the_fast_way_as_it_renders(
    times: int, every: int, real: Path, fitted: Fitted
) -> None:
    """In `make test` every forty-eighth template, on every fourth row."""
    samples = one_in(4, [*rows(real, times), *awkward(real, 9 * times), *map(sample, one_in(3, [*SHAPES]))])
    total = taken([*templates(real)][every // 2 :: every], samples, fitted)
    print(f"\n{dict(total)}")
    assert total["cut"] > total["kept"] * 0.5
    assert total["templates"] >= 48 // every


@settings(max_examples=15)
@given(
    data=st.data(),
    words=st.lists(
        st.text(alphabet=st.sampled_from(list(" \n<>|/![]{}%'\"abcimnstx_ékd7")), max_size=14)
        | st.sampled_from(AWKWARD),
        min_size=2,
        max_size=5,
    ),
)
def test_any_words_are_taken_the_fast_way_as_they_are_rendered(
    data: st.DataObject, words: list[str], real: Path, fitted: Fitted
) -> None:
    name = data.draw(st.sampled_from([*templates(real)][:: SOME if settings.default.derandomize else 1]))
    roles = itertools.cycle(("user", "assistant"))
    messages: list[dict[str, Any]] = [{"role": role, "content": word} for role, word in zip(roles, words, strict=False)]
    hold(fitted.stages(name).renderer, [chat(*messages)])


USUAL = (
    *("Qwen-Qwen2.5-7B", "llamacpp__meta-llama-Llama-3.1", "trl__qwen3.jinja", "Qwen3.5-4B", "Qwen3-Coder"),
    *("trl__qwen3_training", "mistralcommon__v15_image_think", "command_a_tool_use"),
)


@pytest.mark.parametrize("usual", one_in(2, USUAL))
def test_tool_dialogues_under_usual_templates_are_taken_the_fast_way(usual: str, real: Path, fitted: Fitted) -> None:
    name = next(name for name in templates(real) if usual in name)
    with (real / "corpora" / "sgd_train_tools_600.jsonl").open(encoding="utf-8") as lines:
        samples = [read(json.loads(line), row) for row, line in enumerate(itertools.islice(lines, 8 if IS_DEEP else 4))]
    found = hold(fitted.stages(name).renderer, samples)
    assert found.cut >= found.kept - 1 > 0
