"""What holds of documents whatever people write: any Unicode text, on every kind of tokenizer."""

import functools
import json
import random
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import twins
from conversations import conversations
from hypothesis import given
from hypothesis import strategies as st
from search_effort import percent_of_examples
from supervision_stages import ALLOW_ALL, Stages, assistant, chat, samples, system, user

from packer.batches import Sample
from packer.layout import document_labels
from packer.source.decode import Refused, decode_json
from packer.source.schema import read_row

STABLE: list[tuple[Callable[..., Path], str]] = [
    (twins.byte_level, twins.CHATML),
    (twins.double_newline, twins.CHATML),
    (twins.nfc, twins.CHATML),
    (twins.added_letters, twins.CHATML),
    (twins.header_stops, twins.GLM_LIKE),
    (twins.sentencepiece_like, twins.LLAMA2_LIKE),
    (twins.metaspace_first, twins.LLAMA2_LIKE),
]
"""Templates that only append."""

REWRITING: list[tuple[Callable[..., Path], str]] = [
    (twins.swallowing, twins.PHI_LIKE),
    (twins.double_newline, twins.QWEN3_LIKE),
    (twins.nfc, twins.QWEN3_LIKE),
]


def of_pairs(pairs: list[tuple[Callable[..., Path], str]], *at_once: Callable[..., Path]) -> pytest.MarkDecorator:
    """Every pair in `make deep`, those of some twins in `make test`."""
    marked = [
        pytest.param(twin, template, id=f"{twin.__name__}{'-rewriting' * ((twin, template) in REWRITING)}",
                     marks=() if twin in at_once or not at_once else pytest.mark.slow)
        for twin, template in pairs
    ]  # fmt: skip
    return pytest.mark.parametrize(("twin", "template"), marked)


@functools.cache
def load(twin: Callable[..., Path], template: str) -> Stages:
    with tempfile.TemporaryDirectory() as folder:
        return Stages.load(twin(Path(folder), template=template), ALLOW_ALL)


# -- any text --------------------------------------------------------------------------------------------------------------

letters = st.characters(exclude_categories=["Cs"])
tricky = st.sampled_from(
    "\u0301\u0327\u0334\u200b\u200d\u200e\u200f\u202e\u2066\ufeff\ufe0f\u00a0\u2028\u0085\u3000"  # combining, RTL, spaces
    "\u05d0\u0627\u0644\u0915\u094d\u0e33\u1100\u1161\u11a8\uac01\u212b\ufb01\u0345\u1e9b\u0958"  # scripts, compositions
    "\ue000\ue0f0\ue0f1\ue0f2\uf8ff\ufdd0\ufffe\uffff\ufffd\x00\x7f"  # private use, noncharacters
    "\U0001f469\U0001f3fd\U00020000\U000e0041\U000f0000\U0010ffff\U0001fffe\U0001d15e"  # astral planes
    "\u2581\u0120\u010a<|>[]/ \n\r\t"  # what vocabularies and templates write
)
texts = st.text(letters | tricky, max_size=12)


@st.composite
def chats(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Users and assistants in turn."""
    messages = [system(draw(texts))] if draw(st.booleans()) else []
    for _ in range(draw(st.integers(1, 3))):
        messages += [user(draw(texts)), assistant(draw(texts))]
    return messages


@of_pairs(STABLE + REWRITING)
def test_no_proof_fails_whatever_is_written(twin: Callable[..., Path], template: str) -> None:
    stages = load(twin, template)
    seen: Counter[str] = Counter()

    @percent_of_examples(60)
    @given(st.lists(chats(), min_size=4, max_size=8))
    def proved(rows: list[list[dict[str, Any]]]) -> None:
        outcomes = stages.outcomes(samples(rows))
        seen.update(outcome if isinstance(outcome, str) else "kept" for outcome in outcomes)
        assert "proof_failed" not in outcomes

    proved()
    print(f"{twin.__name__}: {dict(seen)}")
    assert seen["kept"] > 18


@pytest.mark.parametrize("separator", ["\x1c", "\x1d", "\x1e", "\x1f"])
def test_what_python_alone_calls_white_space_is_not_swallowed(separator: str) -> None:
    stages = load(twins.swallowing, twins.PHI_LIKE)
    ids, labels = stages.document(chat(user("Hi"), assistant(f"{separator}0")))
    trained = stages.round_trip.decode([i for i in labels if i >= 0])
    assert separator.encode() in trained
    assert len(ids) > 5


# -- provenance ------------------------------------------------------------------------------------------------------------


@of_pairs(STABLE + REWRITING, twins.nfc, twins.swallowing)
def test_every_trained_id_belongs_to_one_message_and_every_message_to_one_run(
    twin: Callable[..., Path], template: str
) -> None:
    stages = load(twin, template)
    runs = 0

    @percent_of_examples(40)
    @given(st.lists(conversations(), min_size=2, max_size=4))
    def owned(rows: list[list[dict[str, Any]]]) -> None:
        nonlocal runs
        _, _, supervised = stages.supervise(samples(rows))
        documents, labels = supervised.documents, document_labels(supervised.documents)
        once: set[tuple[int, int]] = set()
        for d in range(documents.num_documents):
            own = slice(documents.run_offsets[d], documents.run_offsets[d + 1])
            ids = documents.input_ids[documents.offsets[d] : documents.offsets[d + 1]]
            owner = np.full(len(ids), -1)
            for start, end, message in zip(
                documents.run_start[own], documents.run_end[own], documents.run_message[own], strict=True
            ):
                assert 1 <= start < end <= len(ids)
                assert np.all(owner[start:end] == -1)
                owner[start:end] = message
                row = int(documents.sample[d])
                assert rows[row][message]["role"] == "assistant"
                assert (row, int(message)) not in once
                once.add((row, int(message)))
                runs += 1
            expected = np.where(owner >= 0, ids, -100)
            assert labels[documents.offsets[d] : documents.offsets[d + 1]].tolist() == expected.tolist()
            assert len(ids) == documents.run_end[own].max()

    owned()
    assert runs > 10


# -- what comes later ------------------------------------------------------------------------------------------------------


def learned(stages: Stages, sample: Sample) -> dict[int, tuple[list[int], int]] | None:
    """For each trained message all ids up to its end, and where its own begin; None for a rejected row."""
    _, _, supervised = stages.supervise([sample])
    documents = supervised.documents
    turns: dict[int, tuple[list[int], int]] = {}
    for d in range(documents.num_documents):
        ids = documents.input_ids[documents.offsets[d] : documents.offsets[d + 1]].tolist()
        for u in range(documents.run_offsets[d], documents.run_offsets[d + 1]):
            turns[int(documents.run_message[u])] = ids[: documents.run_end[u]], int(documents.run_start[u])
    return turns or None


@of_pairs(STABLE, twins.double_newline, twins.sentencepiece_like)
def test_what_comes_later_never_changes_what_earlier_turns_train(twin: Callable[..., Path], template: str) -> None:
    stages = load(twin, template)
    compared = 0

    @percent_of_examples(40)
    @given(chats(), st.lists(chats(), min_size=1, max_size=2))
    def kept(messages: list[dict[str, Any]], more: list[list[dict[str, Any]]]) -> None:
        nonlocal compared
        longer = [*messages, *(m for chat in more for m in chat if m["role"] != "system")]
        before, after = learned(stages, chat(*messages)), learned(stages, chat(*longer))
        if before is None or after is None:
            return
        assert {k: after[k] for k in before} == before
        compared += len(before)

    kept()
    assert compared > 4


# -- the order of keys -----------------------------------------------------------------------------------------------------


def shuffled(value: Any, random: random.Random) -> Any:
    """The same row with the keys of its messages, and of itself, in another order; arguments of calls are content."""
    if isinstance(value, list):
        return [shuffled(item, random) for item in value]
    if not isinstance(value, dict):
        return value
    items = [(key, item if key == "arguments" else shuffled(item, random)) for key, item in value.items()]
    random.shuffle(items)
    return dict(items)


def read(row: dict[str, Any]) -> Sample:
    value = decode_json(json.dumps(row, ensure_ascii=False).encode())
    return read_row(value, number=0, schema="messages", columns={})


TOOLS = """\
{% for message in messages %}
{{ '<|im_start|>' + message.role + '\\n' + (message.reasoning_content or '') + (message.content or '') }}
{%- for call in message.tool_calls or [] %}
{{ '<call>' + call.function.name + ' ' + call.function.arguments | tojson + '</call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""

extras = st.dictionaries(st.sampled_from(["source", "score", "lang", "tags"]), st.none() | st.integers() | texts)


def test_the_order_of_keys_and_what_else_a_row_holds_change_nothing() -> None:
    stages = load(twins.double_newline, TOOLS)
    outcomes: Counter[str] = Counter()

    @percent_of_examples(60)
    @given(conversations(), extras, st.randoms(use_true_random=False))
    def same(messages: list[dict[str, Any]], beside: dict[str, Any], random: random.Random) -> None:
        flag = {"weight": 1} if random.random() < 0.3 else {}
        marked = [{**message, **flag} if message["role"] == "assistant" else message for message in messages]
        row = {"id": "a", "messages": marked}
        changed = shuffled({**row, **beside}, random)
        try:
            sample = read(row)
        except Refused as refused:
            with pytest.raises(Refused) as caught:
                read(changed)
            assert caught.value.args == refused.args
            outcomes["refused"] += 1
            return
        ((plain,), (other,)) = (stages.outcomes([each]) for each in (sample, read(changed)))
        assert plain == other
        outcomes["rejected" if isinstance(plain, str) else "kept"] += 1

    same()
    print(dict(outcomes))
    assert outcomes["kept"] > 3
