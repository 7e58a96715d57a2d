"""Pairs: one random pair in every form, against what it says; and what is no pair."""

import datetime as dt
import json
from itertools import pairwise

import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from read_files import read_file
from written_formats import as_arrow, as_csv, as_jsonl, as_parquet

from packer.batches import Message, Preference, Sample
from packer.rejections import CODES
from packer.source.decode import Refused
from packer.source.row import rename
from packer.source.schema import SCHEMAS, read_row, schema_of

TEXTS = st.sampled_from(["yes", "yes and no", "Yes", " yes ", "a\n\nb", "ü", "", " "])
SHAREGPT = {"system": "system", "user": "human", "assistant": "gpt"}


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


@st.composite
def answers(draw):
    """What the assistant says, and perhaps how the conversation goes on."""
    rest = draw(st.sampled_from([(), (), (), ("user",), ("user", "assistant"), ("assistant",)]))
    return [assistant(draw(TEXTS)), *({"role": role, "content": draw(TEXTS)} for role in rest)]


@st.composite
def pairs(draw):
    """A prompt and two answers to it, of few words, so that they are often alike."""
    prompt = [{"role": "system", "content": "Be kind."}] * draw(st.integers(0, 1))
    for role in draw(st.sampled_from([(), (), ("user", "assistant"), ("user", "user"), ("user", "assistant") * 2])):
        prompt.append({"role": role, "content": draw(TEXTS)})
    prompt.append(user(draw(TEXTS.filter(bool))))
    beside = draw(st.sampled_from([{}, {"id": "7"}, {"chat_template_kwargs": {"think": False}, "tools": "[]"}]))
    return prompt, draw(answers()), draw(answers()), beside


def as_sharegpt(messages):
    return [{"from": SHAREGPT[each["role"]], "value": each["content"]} for each in messages]


def as_transcript(messages):
    return "".join(f"\n\n{'Human' if each['role'] == 'user' else 'Assistant'}: {each['content']}" for each in messages)


def forms(prompt, chosen, rejected):
    """The same pair as people write it: name → row."""
    ours, theirs = prompt + chosen, prompt + rejected
    asked = [each["content"] for each in prompt if each["role"] == "user"]
    shared = {"chosen": chosen, "rejected": rejected}
    yield "prompt of messages", {"prompt": prompt, **shared}
    yield "OpenAI", {"input": {"messages": prompt}, "preferred_output": chosen, "non_preferred_output": rejected}
    yield "implicit prompt", {"chosen": ours, "rejected": theirs}
    yield "LLaMA-Factory V1", {"chosen_messages": ours, "rejected_messages": theirs}
    yield "prompt that both sides repeat", {"prompt": prompt, "chosen": ours, "rejected": theirs}
    yield "ShareGPT", {"conversations": as_sharegpt(prompt), **{name: as_sharegpt(shared[name]) for name in shared}}
    yield "ShareGPT, implicit prompt", {"chosen": as_sharegpt(ours), "rejected": as_sharegpt(theirs)}
    yield (
        "system apart",
        {"system": "Be kind.", "prompt": prompt[1:], **shared} if prompt[0]["role"] == "system" else None,
    )
    for number, text in ((0, "first"), (-1, "last")):
        if asked[number].strip():
            row = {"prompt": asked[number], "messages": ours, "chosen": ours, "rejected": theirs}
            yield f"UltraFeedback, the {text} prompt beside it", row
    if len(prompt) == 1 and prompt[0]["content"].strip():
        yield "prompt of text", {"prompt": prompt[0]["content"], **shared}
    if all(each["role"] != "system" for each in prompt):
        yield "HH", {"chosen": as_transcript(ours), "rejected": as_transcript(theirs)}
    if len(chosen) == len(rejected) == 1:
        (good,), (bad,) = chosen, rejected
        yield "openai ranking", {"messages": prompt, "chosen": good, "rejected": bad}
        turns = as_sharegpt([good, bad])
        yield "ranking", {"conversations": as_sharegpt(prompt), "chosen": turns[0], "rejected": turns[1]}
        yield "texts", {"messages": prompt, "chosen": good["content"], "rejected": bad["content"]}
        yield "ms-swift", {"messages": ours, "rejected_response": bad["content"]}
        said = [each for each in prompt if each["role"] != "system"]
        if [each["role"] for each in said] == (["user", "assistant"] * len(said))[: len(said)]:
            contents = [each["content"] for each in said]
            row = {
                "history": [*map(list, zip(contents[:-1:2], contents[1::2], strict=True))],
                "instruction": contents[-1],
            }
            row |= {"system": "Be kind."} if prompt[0]["role"] == "system" else {}
            yield "instruction", {**row, "chosen": good["content"], "rejected": bad["content"]}


def meant(prompt, chosen, rejected, beside):
    """The sample, or the codes of what is no pair, word for word as docs/how-to/inputs.md has it."""
    ours, theirs, shared = prompt + chosen, prompt + rejected, 0
    while ours[shared:] and theirs[shared:] and ours[shared] == theirs[shared]:
        shared += 1
    left = ours[shared:], theirs[shared:]
    codes = {"pair_identical"} if left == ([], []) else set()
    if any(a["role"] == b["role"] == "assistant" for side in (ours, theirs) for a, b in pairwise(side)):
        codes.add("wrong_type")
    if any(answer and answer[0]["role"] == "user" for answer in left):
        codes.add("pair_context_differs")
    for whole, answer in ((chosen, left[0]), (rejected, left[1])):
        for said in (whole, answer):
            if not any(each["role"] == "assistant" and each["content"].strip() for each in said):
                codes.add("pair_empty_side")
    if codes:
        return codes

    def side(whole, preference=None):
        messages = [
            Message(fields=each, trained=False if number < shared and each["role"] == "assistant" else None)
            for number, each in enumerate(whole)
        ]
        kwargs = beside.get("chat_template_kwargs", {})
        return Sample(
            kind="chat",
            row=7,
            messages=tuple(messages),
            template_kwargs=kwargs,
            sample_id=beside.get("id"),
            preference=preference,
        )

    return side(ours, Preference(rejected=side(theirs)))


def read(row, schema="preference"):
    try:
        return read_row(json.loads(json.dumps(row)), number=7, schema=schema, columns={})
    except Refused as refused:
        assert refused.code in CODES
        return refused.code


@given(pairs())
def test_every_form_of_a_pair_is_the_sample_that_it_means(pair):
    prompt, chosen, rejected, beside = pair
    expected = meant(*pair)
    event(type(expected).__name__)
    num_forms = 0
    for name, row in forms(prompt, chosen, rejected):
        if row is None:
            continue
        found = read(row | beside)
        assert found in expected if isinstance(expected, set) else found == expected, name
        says_a_side = any(
            value for field, value in row.items() if field.startswith(("chosen", "rejected", "preferred"))
        )
        assert says_a_side == (schema_of(row) == "preference"), name
        num_forms += 1
    assert num_forms >= 6


@given(TEXTS, TEXTS, TEXTS)
def test_texts_are_completions_as_they_stand(prompt, chosen, rejected):
    found = read({"prompt": prompt, "chosen": chosen, "rejected": rejected, "id": 3})
    if not chosen.strip() or not rejected.strip():
        assert found == "pair_empty_side"
    elif not prompt.strip():
        assert found == "pair_no_prompt"
    elif chosen == rejected:
        assert found == "pair_identical"
    else:
        ours, theirs = (
            Sample(kind="completion", row=7, prompt=prompt, text=text, sample_id="3") for text in (chosen, rejected)
        )
        assert found.preference == Preference(rejected=theirs)
        assert (found.kind, found.prompt, found.text, found.sample_id) == (ours.kind, prompt, chosen, "3")


CALL = {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {"n": 1}}}]}
OTHER = {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {"n": True}}}]}
ASK = [user("q")]


@pytest.mark.parametrize(
    ("row", "code"),
    [
        ({"chosen": "a", "rejected": "b"}, "pair_no_prompt"),
        ({"prompt": "", "chosen": "a", "rejected": "b"}, "pair_no_prompt"),
        ({"chosen": [assistant("a")], "rejected": [assistant("b")]}, "pair_no_prompt"),
        ({"system": "s", "chosen": [assistant("a")], "rejected": [assistant("b")]}, "pair_no_prompt"),
        ({"chosen": [user("q"), assistant("a")], "rejected": [user("Q"), assistant("b")]}, "pair_context_differs"),
        ({"prompt": ASK, "chosen": [user("r"), assistant("a")], "rejected": [assistant("b")]}, "pair_context_differs"),
        ({"prompt": ASK, "chosen": [user("r"), assistant("a")], "rejected": [user("r"), assistant("b")]}, "pair_context_differs"),
        ({"prompt": "other", "chosen": [user("q"), assistant("a")], "rejected": [user("q"), assistant("b")]}, "pair_context_differs"),
        ({"prompt": "q", "chosen": "\n\nHuman: r\n\nAssistant: a", "rejected": "\n\nHuman: r\n\nAssistant: b"}, "pair_context_differs"),
        ({"chosen": [*ASK, assistant("a")], "rejected": [*ASK, assistant("a"), assistant("b")]}, "wrong_type"),
        ({"chosen": [*ASK, assistant("a")], "rejected": ASK}, "pair_empty_side"),
        ({"chosen": [*ASK, assistant("a")], "rejected": [*ASK, assistant("a"), user("r")]}, "pair_context_differs"),
        ({"prompt": ASK, "chosen": [], "rejected": [assistant("b")]}, "pair_empty_side"),
        ({"prompt": ASK, "chosen": [CALL], "rejected": [CALL]}, "pair_identical"),
        ({"prompt": {"a": 1}, "chosen": "a", "rejected": "b"}, "wrong_type"),
        ({"prompt": "q", "chosen": "a", "rejected": ASK}, "wrong_type"),
        ({"prompt": "q", "chosen": 1, "rejected": 2}, "wrong_type"),
        ({"prompt": "q", "system": "s", "chosen": "a", "rejected": "b"}, "wrong_type"),
        ({"prompt": ASK, "conversations": as_sharegpt([user("r")]), "chosen": "a", "rejected": "b"}, "wrong_type"),
        ({"instruction": "q", "chosen": [*ASK, assistant("a")], "rejected": [*ASK, assistant("b")]}, "wrong_type"),
        ({"prompt": ASK, "chosen": "<img>a.png</img>", "rejected": "b"}, "multimodal"),
        ({"prompt": ASK, "chosen": "a", "rejected": "b", "images": ["a.png"]}, "multimodal"),
        ({"prompt": ASK, "chosen": "a", "rejected": "b", "weight": 0}, "nothing_trained"),
        ({"prompt": ASK, "chosen": "a", "rejected": "b", "label": True}, "preference"),
        ({"prompt": ASK, "chosen": "a"}, "unknown_schema"),
        ({"prompt": ASK, "chosen": [{"role": "nobody", "content": "a"}], "rejected": [assistant("b")]}, "unknown_role"),
    ],
)  # fmt: skip
def test_what_is_no_pair_is_refused_by_its_code(refusal, row, code):
    found, reason = refusal(row, "preference")
    assert found == code and reason


def test_calls_that_differ_in_the_type_of_an_argument_are_two_answers(sample):
    """For Python 1 equals true; a template writes them differently."""
    found = sample({"prompt": ASK, "chosen": [CALL], "rejected": [OTHER]}, "preference")
    assert [repr(message.fields["tool_calls"][0]["function"]["arguments"]) for message in found.all_messages[1:]] == [
        "{'n': 1}",
        "{'n': True}",
    ]


def test_an_answer_keeps_its_own_flag_and_the_context_is_not_trained(sample):
    row = {
        "prompt": [user("q"), assistant("a") | {"weight": 1}, user("r")],
        "chosen": [assistant("b") | {"weight": 1}],
        "rejected": [assistant("c")],
    }
    found = sample(row, "preference")
    assert [message.trained for message in found.messages] == [None, False, None, True]
    assert [message.trained for message in found.preference.rejected.messages] == [None, False, None, None]


@pytest.mark.parametrize(
    "fields",
    [
        {"margin": 2, "score_chosen": 1, "score_rejected": 9},
        {"margin": "0.5"},
        {"margin": 0, "score_chosen": 1, "score_rejected": 9},
        {"margin": "", "score_chosen": "8.5", "score_rejected": "7"},
        {"margin": "much"},
        {"score_chosen": 3, "score_rejected": None},
        {"score_chosen": True, "score_rejected": "good"},
        {"chosen_rating": 5, "rejected_rating": 3},
        {"chosen_avg_rating": 4, "rejected_avg_rating": 4},
    ],
)
def test_a_pair_whose_margin_or_else_scores_do_not_prefer_the_rejected_answer_is_as_without_them(sample, fields):
    row = {"prompt": "q", "chosen": "a", "rejected": "b"}
    assert sample(row | fields, "preference") == sample(row, "preference")


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"margin": "-0.5"}, "margin"),
        ({"score_chosen": 1, "score_rejected": 9}, "score_chosen"),
        ({"rejected_score": 4.5, "chosen_score": 3}, "chosen_score"),
        ({"margin": "", "rating_chosen": "4", "rating_rejected": "4.5"}, "rating_chosen"),
        ({"chosen-rating": 4.5, "rejected-rating": 5}, "chosen-rating"),
        ({"score_chosen": -3e38, "score_rejected": 3e38}, "score_chosen"),
    ],
)
def test_a_pair_whose_scores_prefer_the_rejected_answer_is_refused_and_read_without_them(sample, refusal, fields, name):
    row = {"prompt": "q", "chosen": "a", "rejected": "b"} | fields
    code, reason = refusal(row, "preference")
    assert code == "wrong_type" and f"columns: {{{name}: null}}" in reason
    assert sample(rename(row, {name: None}), "preference")


def test_the_request_of_a_pair_as_openai_writes_it_is_its_own(sample, refusal):
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    answers = {"preferred_output": [assistant("yes")], "non_preferred_output": [assistant("no")]}
    request = {"messages": [user("q")], "tools": tools, "parallel_tool_calls": True}
    row = {"messages": [user("q")], "tools": tools, "chosen": assistant("yes"), "rejected": assistant("no")}
    assert sample({"input": request} | answers, "preference") == sample(row, "preference")
    assert schema_of({"input": request} | answers) == "preference"
    assert refusal({"input": request, "tools": tools} | answers, "preference")[0] == "wrong_type"
    assert refusal({"input": '{"messages": ['} | answers, "preference")[0] == "not_json"
    assert refusal({"input": str(request)} | answers, "preference")[0] == "not_json"
    assert refusal({"input": "q"} | answers, "preference")[0] == "pair_no_prompt"
    assert refusal({"input": [user("q")]} | answers, "preference")[0] == "pair_no_prompt"


def test_an_input_that_is_no_request_is_none_under_openais_names_either(sample):
    texts, openais = (
        dict(zip(names, ("yes", "no"), strict=True))
        for names in (("chosen", "rejected"), ("preferred_output", "non_preferred_output"))
    )
    for row in ({"prompt": "q", "input": ""}, *({"instruction": "q", "input": said} for said in ("", "b", "{b}"))):
        assert sample(row | openais, "preference") == sample(row | texts, "preference")


def test_whole_conversations_beside_another_request_are_read_by_the_columns_of_the_reason(sample, refusal):
    sides = {"preferred_output": [user("q"), assistant("yes")], "non_preferred_output": [user("q"), assistant("no")]}
    for request in ({"messages": [user("r")]}, '{"messages": [{"role": "user", "content": "r"}]}'):
        code, reason = refusal({"input": request} | sides, "preference")
        assert code == "pair_context_differs" and reason.endswith("`columns: {input: null}` passes over those")
        assert sample({"input": request} | sides, "preference", columns={"input": None}) == sample(sides, "preference")
    code, reason = refusal({"input": {"messages": [user("r")], "tools": [{"name": "f"}]}} | sides, "preference")
    assert code == "pair_context_differs" and "columns" not in reason  # these would pass over the tools, too


@pytest.mark.parametrize("write", [as_jsonl, as_csv, as_parquet, as_arrow])
def test_every_form_means_the_same_in_tables(tmp_path, write):
    named = [(name, row) for name, row in forms([user("q")], [assistant("a")], [assistant("b")]) if row is not None]
    for name, row in named:
        for number, scored in enumerate(({}, {"score_chosen": 3.5, "score_rejected": 1, "tools": '[{"name": "f"}]'})):
            path = tmp_path / f"{name}-{number}"
            path.write_bytes(write([row | scored]))
            found = read_file(path.rename(path.with_suffix(".csv" if write is as_csv else ".x")))
            (sample,) = found.samples
            assert (found.schema, found.codes) == ("preference", []), name
            assert [message.fields["content"] for message in sample.all_messages] == ["q", "a", "b"], name
            assert sample.tools == sample.preference.rejected.tools
            assert bool(sample.tools) == bool(scored)
    assert len(named) > 10


def test_fields_of_messages_that_json_has_no_word_for_are_passed_over_in_pairs_too(tmp_path):
    when = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    sides = {"chosen": [user("q"), assistant("a")], "rejected": [user("q"), assistant("b")]}
    path = tmp_path / "rows"
    path.write_bytes(as_parquet([{name: [each | {"at": when} for each in side] for name, side in sides.items()}]))
    _, schema, (sample,) = read_file(path)
    assert schema == "preference"
    assert [message.fields for message in sample.all_messages] == [user("q"), assistant("a"), assistant("b")]


VALUES = st.sampled_from(
    [
        *(None, "", "q", 7, True, {}, [], [[]], [None], ["a"], {"a": 1}, "\n\nHuman:", '{"from": 1}', '[{"from": "gpt"}]'),
        *(user("q"), [user("q")], [assistant("a")], [user("q"), assistant("a")], [user("q"), assistant("b")]),
        *(as_sharegpt([assistant("a")])[0], as_sharegpt([user("q"), assistant("a")]), [{"role": None}], [{"from": 3}]),
    ]
)  # fmt: skip


@given(st.dictionaries(st.sampled_from([*SCHEMAS["preference"].fields, "label", "completion"]), VALUES, max_size=6))
def test_whatever_the_fields_hold_a_row_is_a_sample_or_refused(row):
    row = {"chosen": [user("q"), assistant("a")], "rejected": [user("q"), assistant("b")]} | row
    for schema in ("preference", "rated"):
        found = read(row, schema)
        assert isinstance(found, str) or found.preference is not None
