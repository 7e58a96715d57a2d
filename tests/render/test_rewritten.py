"""Templates that rewrite history: what each reading of them keeps."""

import tracemalloc
from pathlib import Path

import twins
from hypothesis import given
from hypothesis import strategies as st
from supervision_stages import Stages, assistant, chat, user

from packer.render.rewritten_history import TurnAssigner
from packer.render.turns import RenderedTurn, TurnRules


def stages(folder: Path, *overrides: str) -> Stages:
    return Stages.load(twins.byte_level(folder, template=twins.QWEN3_LIKE), *overrides)


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
