"""Pairs: each side is the document of a chat, both share their prompt, and what is no pair is dropped whole."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import twins
from conversations import conversations
from hypothesis import given
from hypothesis import strategies as st
from search_effort import percent_of_examples
from supervision_stages import Stages as Literal
from supervision_stages import assistant, chat, user

from packer.batches import CHOSEN, DESIRABLE, REJECTED, UNDESIRABLE, Preference, RowBatch, Sample
from packer.layout import document_labels, misplaced_sides
from packer.model.model import load_model
from packer.pipeline.stages import Stages, SupervisedRows
from packer.recipe.recipe import make_recipe

MODES = """\
{% for message in messages %}
{{ '<|im_start|>' + message.role + '\\n' }}
{%- if message.role == 'assistant' and loop.last -%}
{{ '<think>' + (message.reasoning_content or '') + '</think>' }}
{%- endif -%}
{{ message.content + '<|im_end|>\\n' }}
{%- endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}
{%- if enable_thinking is defined and not enable_thinking %}{{ '<think></think>' }}{% endif %}{% endif %}"""
"""As Qwen3's: an answer without reasoning is best continued from the prompt that closes it."""


def sides(context: list[dict[str, Any]], *answers: list[dict[str, Any]], row: int = 0, **fields: Any) -> list[Sample]:
    """A conversation for each answer; only what is said after the context is learned."""
    masked = {k: 0.0 for k, message in enumerate(context) if message["role"] == "assistant"}
    return [chat(*context, *answer, row=row, flags=masked, **fields) for answer in answers]


def pair(chosen: Sample, rejected: Sample) -> Sample:
    return msgspec.structs.replace(chosen, preference=Preference(rejected=rejected))


def stages_of(folder: Path, *overrides: str, template: str | None = None) -> Stages:
    if template is not None:
        (folder / "template.jinja").write_text(template)
    model = load_model(folder, template=folder / "template.jinja" if template is not None else None)
    return Stages(make_recipe({}, ["engine=reference", *overrides]), model)


def run(stages: Stages, *samples: Sample) -> SupervisedRows:
    return stages.run(RowBatch(samples=samples, rejections=(), num_rows=len(samples)))


def documents_of(done: SupervisedRows) -> list[tuple[list[int], list[int]]]:
    found, labels = done.documents, document_labels(done.documents)
    spans = [slice(a, b) for a, b in zip(found.offsets[:-1], found.offsets[1:], strict=True)]
    return [(found.input_ids[span].tolist(), labels[span].tolist()) for span in spans]


@pytest.mark.parametrize("twin", [twins.byte_level, twins.sentencepiece_like])
def test_sides_are_what_their_chats_are_and_share_what_stands_before_them(twin: Any, tmp_path: Path) -> None:
    folder = twin(tmp_path)
    stages, literal = stages_of(folder), Literal.load(folder)
    answers = conversations().map(lambda messages: [assistant("so"), *messages][:3])
    rows = st.lists(st.tuples(conversations(), answers, answers), min_size=1, max_size=4)

    @percent_of_examples(40)
    @given(rows)
    def check(rows: list[Any]) -> None:
        pairs = [sides(context, *both, row=row) for row, (context, *both) in enumerate(rows)]
        done = run(stages, *(pair(*both) for both in pairs))
        rejected = {each.row: each.code for each in done.rejections}
        kept = done.documents.sample.tolist()
        assert set(kept).isdisjoint(rejected)
        assert {*kept, *rejected} == set(range(len(rows)))
        assert done.documents.side is not None
        assert not misplaced_sides(done.documents.sample, done.documents.side).any()
        made = iter(documents_of(done))
        for row, both in enumerate(pairs):
            alone = [literal.outcomes([msgspec.structs.replace(side, row=0)])[0] for side in both]
            if row not in rejected:
                assert [next(made), next(made)] == [alone[0][0], alone[1][0]]
                (ids, labels), (others, other_labels) = alone[0][0], alone[1][0]
                starts = [next(i for i, each in enumerate(of) if each >= 0) for of in (labels, other_labels)]
                assert starts[0] == starts[1]
                assert ids[: starts[0]] == others[: starts[0]]
                assert ids != others
            elif rejected[row] == "pair_rewritten":
                assert any(len(each) > 1 for each in alone)
            elif rejected[row] == "pair_identical":
                assert alone[0] == alone[1]
            else:
                assert rejected[row] in [each for each in alone if isinstance(each, str)]

    check()


def test_the_first_side_that_is_rejected_says_why(tmp_path: Path) -> None:
    stages = stages_of(twins.byte_level(tmp_path))
    good, bad = sides([user("Hello!")], [assistant("fox")], [assistant("a <|im_end|> b")])
    assert [(each.code, each.reason[:9]) for each in run(stages, pair(good, bad)).rejections] == [
        ("control_token", "rejected:")
    ]
    assert [each.reason[:7] for each in run(stages, pair(bad, good)).rejections] == ["chosen:"]


def test_a_reasoned_and_a_plain_answer_need_one_mode(tmp_path: Path) -> None:
    folder = twins.byte_level(tmp_path)
    both = sides([user("Hello!")], [assistant("fox", reasoning_content="hm")], [assistant("dog")])
    (rejection,) = run(stages_of(folder, template=MODES), pair(*both)).rejections
    assert rejection.code == "pair_modes_differ"
    assert "<think></think>" in rejection.reason
    fixed = stages_of(folder, "template.kwargs={enable_thinking: true}", template=MODES)
    done = run(fixed, pair(*both))
    assert not done.rejections
    starts = [int(done.documents.run_start[place]) for place in done.documents.run_offsets[:-1]]
    assert starts[0] == starts[1]


def test_a_later_turn_alone_is_no_answer_to_the_same_request(tmp_path: Path) -> None:
    both = sides(
        [user("Hello!")],
        [assistant("fox"), user("and?"), assistant("ox")],
        [assistant("dog"), user("and?"), assistant("cat")],
    )
    folder = twins.byte_level(tmp_path)
    assert not run(stages_of(folder), pair(*both)).rejections
    (rejection,) = run(stages_of(folder, "supervision.turns=last"), pair(*both)).rejections
    assert rejection.code == "pair_prompt_differs"
    assert "turns of the answers" in rejection.reason


def test_sides_that_differ_in_nothing_trained_are_no_pair(tmp_path: Path) -> None:
    both = sides([user("Hello!")], *([assistant(said, reasoning_content="hm")] for said in ("fox", "dog")))
    folder = twins.byte_level(tmp_path)
    kept = run(stages_of(folder, "supervision.parts=[text]", template=twins.QWEN3_LIKE), pair(*both))
    assert not kept.rejections
    (rejection,) = run(
        stages_of(folder, "supervision.parts=[reasoning]", template=twins.QWEN3_LIKE), pair(*both)
    ).rejections
    assert rejection.code == "pair_identical"


@given(st.lists(st.booleans(), max_size=6), st.data())
def test_sides_that_stand_elsewhere_are_found(ratings: list[bool], data: st.DataObject) -> None:
    row = np.repeat(np.arange(len(ratings)), 2)
    side = np.tile(np.array([CHOSEN, REJECTED], np.int8), len(ratings))
    assert not misplaced_sides(row, side).any()
    if len(row):
        at = data.draw(st.integers(0, len(row) - 1))
        other = side.copy()
        other[at] = data.draw(st.integers(-1, 5).filter(lambda value: value != side[at]))
        assert misplaced_sides(row, other).any()
        moved = row.copy()
        moved[at] += 1
        assert misplaced_sides(moved, side).any()
        assert misplaced_sides(row[:-1], side[:-1]).any()
    rated = np.where(ratings, DESIRABLE, UNDESIRABLE).astype(np.int8)
    assert not misplaced_sides(np.arange(len(ratings)), rated).any()
