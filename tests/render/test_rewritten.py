"""Templates that rewrite history: what each reading of them keeps."""

from pathlib import Path

import pytest
import twins
from supervised import Stages, assistant, chat, user

TALK = (user("one?"), assistant("One."), user("two?"), assistant("Two."), user("three?"), assistant("Three."))
EMPTY = "<think>\n\n</think>\n\n"


def stages(folder: Path, *overrides: str) -> Stages:
    return Stages.load(twins.byte_level(folder, template=twins.QWEN3_LIKE), *overrides)


def texts(stages: Stages, *messages: dict[str, object]) -> list[tuple[str, list[str]]]:
    """Every text with the completions trained in it."""
    batch = stages.render([chat(*messages)])
    assert not batch.rejections, batch.rejections
    wholes = [batch.text[a:b].decode() for a, b in zip(batch.text_offsets[:-1], batch.text_offsets[1:], strict=True)]
    trained: list[list[str]] = [[] for _ in wholes]
    for n, start, end in zip(batch.turn_text, batch.prompt_end, batch.completion_end, strict=True):
        trained[n].append(wholes[n].encode()[start:end].decode())
    return list(zip(wholes, trained, strict=True))


def test_exact_gives_every_turn_the_context_inference_gives_it(tmp_path: Path) -> None:
    first, second, third = texts(stages(tmp_path), *TALK)
    assert [trained for _, trained in (first, second, third)] == [
        ["One.<|im_end|>"],
        ["Two.<|im_end|>"],
        ["Three.<|im_end|>"],
    ]
    assert first[0].endswith(f"assistant\n{EMPTY}One.<|im_end|>")
    assert "assistant\nOne.<|im_end|>" in second[0]
    assert EMPTY + "One." not in second[0]


def test_last_keeps_only_the_last_text(tmp_path: Path) -> None:
    ((whole, trained),) = texts(stages(tmp_path, "supervision.rewritten=last"), *TALK)
    assert trained == ["Three.<|im_end|>"]
    assert "Two." in whole


def test_as_rendered_trains_history_as_the_last_text_shows_it(tmp_path: Path) -> None:
    ((whole, trained),) = texts(stages(tmp_path, "supervision.rewritten=as_rendered"), *TALK)
    assert trained == ["One.<|im_end|>", "Two.<|im_end|>", "Three.<|im_end|>"]
    assert whole.count(EMPTY) == 1


def test_as_rendered_does_not_train_a_turn_whose_reasoning_history_drops(tmp_path: Path) -> None:
    talk = (user("one?"), assistant("One.", reasoning_content="hm"), *TALK[2:4])
    (first, trained_first), (_, trained_second) = texts(stages(tmp_path, "supervision.rewritten=as_rendered"), *talk)
    assert trained_first == ["<think>\nhm\n</think>\n\nOne.<|im_end|>"]
    assert first.endswith("One.<|im_end|>")
    assert trained_second == ["Two.<|im_end|>"]


@pytest.mark.parametrize("rule", ["exact", "last", "as_rendered"])
def test_a_stable_template_gives_one_text_under_every_reading(tmp_path: Path, rule: str) -> None:
    plain = Stages.load(twins.byte_level(tmp_path), f"supervision.rewritten={rule}")
    ((_, trained),) = texts(plain, *TALK)
    assert trained == ["One.<|im_end|>", "Two.<|im_end|>", "Three.<|im_end|>"]


@pytest.mark.parametrize("rule", ["exact", "as_rendered"])
def test_every_turn_is_trained_exactly_once(tmp_path: Path, rule: str) -> None:
    batch = stages(tmp_path, f"supervision.rewritten={rule}").render([chat(*TALK)])
    assert sorted(batch.turn_message.tolist()) == [1, 3, 5]


def test_a_chain_of_calls_shares_one_text(tmp_path: Path) -> None:
    """No user in between: nothing is rewritten, so the turns share their context."""
    talk = (
        user("one?"),
        assistant("a", reasoning_content="hm"),
        {"role": "tool", "content": "42"},
        assistant("b", reasoning_content="so"),
    )
    ((_, trained),) = texts(stages(tmp_path), *talk)
    assert len(trained) == 2
