"""Real conversations under every real template: filled into skeletons and rendered, the same bytes."""

import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from fitted_tokenizers import Fitted, templates
from hypothesis import given, settings
from hypothesis import strategies as st
from rendered_twice import filling_in, literal
from supervision_stages import ALLOW_ALL, chat

from packer.batches import RowBatch, Sample
from packer.render import filling

pytestmark = pytest.mark.real

CORPORA = ("sgd_train_chat_1800", "hh_harmless_test_messages")
AWKWARD = ("</think> so", "<think>\nhm\n</think>\n\nso", " \n", "<|im_end|>", "a [INST] b", "{{ bos_token }}", " x ")
FORMS = (
    ("user", "assistant"),
    ("system", "user", "assistant"),
    ("user", "assistant", "user", "assistant"),
    ("user", "assistant") * 4,
)


SOME = 12
"""Of the templates `make test` draws from every twelfth: compiling them takes longer than what they render."""


def said(real: Path) -> Iterator[str]:
    """What people and assistants say in the corpora, turn after turn, with awkward words among it."""
    awkward = itertools.cycle(AWKWARD)
    number = 0
    for name in CORPORA:
        with (real / "corpora" / f"{name}.jsonl").open(encoding="utf-8") as lines:
            for line in itertools.islice(lines, 200):
                for message in json.loads(line)["messages"]:
                    number += 1
                    yield message["content"] if number % 11 else next(awkward)


def conversations(real: Path, number: int) -> list[Sample]:
    words = said(real)
    rows: list[Sample] = []
    for form in itertools.islice(itertools.cycle(FORMS), number):
        messages: list[dict[str, Any]] = [{"role": role, "content": next(words)} for role in form]
        rows.append(chat(*messages, row=len(rows)))
    return rows


def hold(names: Sequence[str], rows: Sequence[Sample], fitted: Fitted) -> dict[str, int]:
    """How many rows are filled in under each template, each of them rightly."""
    batch = RowBatch(samples=tuple(rows), rejections=(), num_rows=len(rows))
    num_filled = dict.fromkeys(names, 0)
    for name in names:
        renderer = fitted.stages(name, ALLOW_ALL).renderer
        rendered = literal(renderer).render(batch)
        by_skeletons = filling_in(renderer, rows)
        assert by_skeletons.text == rendered.text, name
        for column in ("text_offsets", "sample", "turn_text", "turn_message", "prompt_end", "completion_end", "weight"):
            assert getattr(by_skeletons, column).tolist() == getattr(rendered, column).tolist(), (name, column)
        assert by_skeletons.rejections == rendered.rejections, name
        if renderer._filling is not None:
            num_filled[name] = len(renderer._filling.fill(rows))
    return num_filled


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filling, "WORTH_A_SKELETON", 1)


@pytest.mark.parametrize(("number", "every"), [(12, 12), pytest.param(240, 1, marks=pytest.mark.slow)])
def test_every_real_template_writes_the_same_by_skeletons(number: int, every: int, real: Path, fitted: Fitted) -> None:
    """In `make test` every twelfth template."""
    num_filled = hold([*templates(real)][every // 2 :: every], conversations(real, number), fitted)
    used = [name for name, filled in num_filled.items() if filled > number // 8]
    print(
        f"\n{len(used)} of {len(num_filled)} real templates are filled in; not: {sorted(set(num_filled) - set(used))}"
    )
    assert len(used) >= 70 // every - 2


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
def test_any_words_are_filled_in_as_they_are_rendered(
    data: st.DataObject, words: list[str], real: Path, fitted: Fitted
) -> None:
    name = data.draw(st.sampled_from([*templates(real)][:: SOME if settings.default.derandomize else 1]))
    roles = itertools.cycle(("user", "assistant"))
    hold([name], [chat(*({"role": role, "content": word} for role, word in zip(roles, words, strict=False)))], fitted)
