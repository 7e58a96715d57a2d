"""What rules about rows see of preference data, and of calls."""

import json

import pytest
from xxhash import xxh3_128_digest

from packer.batches import Preference, Sample
from packer.curate import traits
from packer.curate.texts import answers, content_key, conversation, prompt_key, prompts, utterances
from packer.recipe.row_rules import Filter, Range
from packer.source.schema import read_row

PROMPT = [
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Ho"},
    {"role": "user", "content": "Why?"},
]
CHOSEN = [{"role": "assistant", "content": "So."}]
REJECTED = [{"role": "assistant", "content": "No.", "mood": "bad"}, {"role": "user", "content": "Oh."}]
ROW = {"prompt": PROMPT, "chosen": CHOSEN, "rejected": REJECTED}
TEXTS = {"prompt": "Why?", "chosen": "So.", "rejected": "No."}


def read(row, schema="preference"):
    return read_row(row, number=0, schema=schema, columns={})


def test_texts_of_a_pair_are_those_of_both_sides_and_the_context_counts_once():
    pair = read(ROW)
    assert prompts(pair) == ["Hi", "Why?", "Oh."]
    assert answers(pair) == ["Ho", "So.", "No."]
    assert conversation(pair) == "Hi\nHo\nWhy?\nSo.\nNo.\nOh."
    assert [text for _, text in utterances(pair)] == ["Hi", "Ho", "Why?", "So.", "No.", "Oh."]
    texts = read(TEXTS)
    assert (prompts(texts), answers(texts)) == (["Why?"], ["So.", "No."])
    assert conversation(texts) == "Why?\nSo.\nNo."
    assert [*utterances(texts)] == [("user", "Why?"), ("assistant", "So."), ("assistant", "No.")]


def test_a_pair_passes_where_both_sides_do():
    samples = [read(ROW), read(ROW | {"rejected": CHOSEN[:0] + REJECTED[:1]}), read(TEXTS)]
    for rule, expected in (
        (Filter(name="few", messages=Range(max=4, min=1)), [False, True, False]),
        (Filter(name="short", of="answers", chars=Range(max=3)), [True, True, True]),
        (Filter(name="no", of="answers", not_matches="No"), [False, False, False]),
        (Filter(name="all", of="conversation", chars=Range(min=14, max=20)), [True, True, False]),
        (Filter(name="fit", of="conversation", chars=Range(max=8)), [False, False, True]),
        (Filter(name="so", of="conversation", matches="So"), [False, False, False]),
    ):
        assert traits.ConditionTester(rule, rule.name, None).of_samples(samples).tolist() == expected


@pytest.mark.parametrize("folded", [False, True])
def test_pairs_are_the_same_content_only_where_both_sides_are(folded):
    others = [
        ROW,
        ROW | {"chosen": REJECTED, "rejected": CHOSEN},
        ROW | {"rejected": REJECTED[:1]},
        TEXTS,
        TEXTS | {"rejected": "Never."},
    ]
    pairs = [read(row) for row in others]
    rows = [{"prompt": "Why?", "completion": "So."}, {"messages": [*PROMPT, *CHOSEN]}]
    rated = [read(row | {"label": label}, "rated") for row in rows for label in (True, False)]
    plain = [read(rows[0], "completion"), read(rows[1], "messages")]
    keys = {content_key(sample, folded=folded) for sample in (*pairs, *rated, *plain)}
    assert len(keys) == len(pairs) + len(rated) + len(plain)
    for beside in ({"id": "another"}, {"margin": 2}):  # numbers beside the texts are columns
        assert content_key(read(ROW | beside), folded=folded) == content_key(pairs[0], folded=folded)
    assert content_key(read({"chosen": PROMPT + CHOSEN, "rejected": PROMPT + REJECTED}), folded=folded) == content_key(
        pairs[0], folded=folded
    )


@pytest.mark.parametrize("schema", ["messages", "preference", "completion"])
def test_normalized_content_ignores_white_space_and_the_case_of_ascii_letters_alone(schema):
    def keys(asked, said):
        answer = [{"role": "assistant", "content": said, "reasoning_content": asked}]
        row = {
            "messages": {"messages": [*PROMPT[:2], {"role": "user", "content": asked}, *answer]},
            "preference": {"prompt": asked, "chosen": said, "rejected": "No."},
            "completion": {"prompt": asked, "completion": said},
        }[schema]
        return [content_key(read(row, schema), folded=folded) for folded in (False, True)]

    first, alike = keys("Why so?", "\u00c9 B"), keys(" why\n SO? ", "\u00c9\tb")
    assert first[0] != alike[0] and first[1] == alike[1]
    for others in (("Whyso?", "\u00c9 B"), ("Why so?", "\u00e9 B"), ("Why so?", "\u00c9\u00a0B")):
        assert keys(*others)[1] != first[1]


def test_a_pair_is_split_by_its_first_prompt_and_other_rows_keep_their_keys():
    """Of caches that there are, the rows keep their splits."""
    messages = [*PROMPT, *CHOSEN]
    alone = read({"messages": messages}, "messages")
    assert prompt_key(read(ROW)) == prompt_key(alone)
    written = [[[message, None] for message in messages], None, {}, "", ""]
    compact = json.dumps(written, sort_keys=True, separators=(",", ":")).encode()
    assert content_key(alone) == xxh3_128_digest(compact)
    rated = Sample(kind="text", row=0, text="a", preference=Preference())
    assert content_key(rated) != content_key(Sample(kind="text", row=0, text="a"))


@pytest.mark.parametrize("content", [None, ""])
def test_a_message_that_only_calls_tools_has_no_text_that_could_be_short(content):
    calls = [{"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}}]
    asked = {"role": "user", "content": "And?"}
    called = {"role": "assistant", "content": content, "tool_calls": calls}
    result = {"role": "tool", "content": "9", "tool_call_id": "a"}
    rows = [
        {"messages": [asked, called, result, {"role": "assistant", "content": "It is 9."}]},
        {"messages": [asked, called]},
        {"messages": [asked, called, result, {"role": "assistant", "content": ""}]},
    ]
    samples = [read(row, "messages") for row in rows]
    assert [answers(sample) for sample in samples] == [["It is 9."], [], [""]]
    assert conversation(samples[0]) == "And?\nIt is 9."
    rule = Filter(name="short", of="answers", chars=Range(min=2))
    assert traits.ConditionTester(rule, "short", None).of_samples(samples).tolist() == [True, True, False]
