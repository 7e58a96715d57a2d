"""Templates that rewrite history: what each reading of them keeps."""

import tracemalloc
from pathlib import Path

import pytest
import twins
from hypothesis import given
from hypothesis import strategies as st
from supervision_stages import Stages, assistant, chat, user

from packer.render.rewritten_history import TurnAssigner
from packer.render.turns import RenderedTurn, TurnRules

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
    ((whole, trained),) = texts(stages(tmp_path, "supervision.history_rewrite=last"), *TALK)
    assert trained == ["Three.<|im_end|>"]
    assert "Two." in whole


def test_as_rendered_trains_history_as_the_last_text_shows_it(tmp_path: Path) -> None:
    ((whole, trained),) = texts(stages(tmp_path, "supervision.history_rewrite=as_rendered"), *TALK)
    assert trained == ["One.<|im_end|>", "Two.<|im_end|>", "Three.<|im_end|>"]
    assert whole.count(EMPTY) == 1


def test_as_rendered_does_not_train_a_turn_whose_reasoning_history_drops(tmp_path: Path) -> None:
    talk = (user("one?"), assistant("One.", reasoning_content="hm"), *TALK[2:4])
    (first, trained_first), (_, trained_second) = texts(
        stages(tmp_path, "supervision.history_rewrite=as_rendered"), *talk
    )
    assert trained_first == ["<think>\nhm\n</think>\n\nOne.<|im_end|>"]
    assert first.endswith("One.<|im_end|>")
    assert trained_second == ["Two.<|im_end|>"]


@pytest.mark.parametrize("rule", ["exact", "last", "as_rendered"])
def test_a_stable_template_gives_one_text_under_every_reading(tmp_path: Path, rule: str) -> None:
    plain = Stages.load(twins.byte_level(tmp_path), f"supervision.history_rewrite={rule}")
    ((_, trained),) = texts(plain, *TALK)
    assert trained == ["One.<|im_end|>", "Two.<|im_end|>", "Three.<|im_end|>"]


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


def test_each_turn_is_in_the_last_maximal_text_that_begins_with_it() -> None:
    """Held to the definition, which compares every text with every other."""

    @given(st.lists(st.sampled_from(["", "a", "ab", "abc", "abcd", "abd", "b", "bc", "abca"]), min_size=1, max_size=8))
    def check(contents: list[str]) -> None:
        home = [max(j for j, b in enumerate(contents) if b.startswith(a)) for a in contents]
        expected = {j: [i for i, h in enumerate(home) if h == j] for j in sorted(set(home))}
        documents = assigned(contents).documents()
        assert {document.last: [p.message for p in document.placed] for document in documents} == expected
        assert [document.text for document in documents] == [contents[j] for j in expected]
        assert all(p.completion_end == len(contents[p.message]) for document in documents for p in document.placed)

    check()


def assigned(contents: list[str], max_bytes: int = 1000) -> TurnAssigner:
    assigner = TurnAssigner(TurnRules(stops=None, append=None, max_bytes=max_bytes, marks=""))
    for k, text in enumerate(contents):
        assigner.add(
            RenderedTurn(
                message=k,
                text=text,
                prompt_end=0,
                prompt_ends=(0,),
                whole=text,
                mode={},
            )
        )
    return assigner


def test_memory_grows_with_the_conversation_and_not_with_its_square(tmp_path: Path) -> None:
    plain = Stages.load(twins.byte_level(tmp_path))

    def peak(num_turns: int) -> int:
        talk = [message for k in range(num_turns) for message in (user(f"{k} " * 200), assistant(f"{k} " * 200))]
        tracemalloc.start()
        batch = plain.render([chat(*talk)])
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert len(batch.turn_message) == num_turns
        return peak

    assert peak(40) < 3 * peak(20)


def test_the_texts_of_a_rewritten_history_together_are_bounded(tmp_path: Path) -> None:
    """Each rendering is small enough, all of them are not; a template that only appends keeps one."""
    wide = user("é" * 300)
    talk = [message for k in range(4) for message in (wide, assistant(f"{k}"))]
    limit = "rows.max_render_bytes=4000"
    assert [r.code for r in stages(tmp_path / "a", limit).render([chat(*talk)]).rejections] == ["render_too_large"]
    assert not Stages.load(twins.byte_level(tmp_path / "b"), limit).render([chat(*talk)]).rejections
    assert not stages(tmp_path / "c", "rows.max_render_bytes=8000").render([chat(*talk)]).rejections
