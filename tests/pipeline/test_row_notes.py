"""What a build says of rows that are hardly meant as they stand, and what it asks about texts that are single messages."""

import datetime as dt
from contextlib import nullcontext
from itertools import cycle

import pyarrow as pa
import pytest
import yaml
from hints import settings_in
from watched_builds import Notes

import packer
from packer.audit.view import view_row
from packer.errors import InputError
from packer.store.cache import Cache

ASKED = "When does the ferry leave from Oban?"


@pytest.fixture
def told(starter, tmp_path):
    """What a build of rows notes."""

    def build(rows, name="cache", **options):
        notes = Notes()
        options |= {"tokenizer": starter / "tokenizer", "pack": {"mode": "none"}, "progress": notes, "jobs": 1}
        packer.build(rows, tmp_path / name, **options)
        return "\n".join(notes.notes)

    return build


@pytest.mark.parametrize(
    ("answer", "says", "is_chat"),
    [
        (f"{ASKED} At six.", "begins with the whole question", False),
        (f"{ASKED} At six.", "begins with the whole question", True),
        ("At six.\n\nHuman: And the next?\n\nAssistant: At ten.", "has further turns in its text", False),
        ("At six.\nuser\nAnd the next?\nassistant\nAt ten.", "has further turns in its text", True),
        ('["At six."]', "is a list written as text", False),
        ("['At six.', \"At ten.\"]", "is a list written as text", True),
    ],
)
def test_answers_that_are_hardly_meant_as_they_stand_are_reported_where_most_are(told, answer, says, is_chat):
    for num_repeat, is_told in ((5, True), (4, False)):
        said = [answer if number < num_repeat else "At six." for number in range(8)]
        rows = [{"prompt": f"{ASKED}\n", "completion": each} for each in said]
        if is_chat:
            asked = {"role": "user", "content": ASKED}
            rows = [{"messages": [asked, {"role": "assistant", "content": each}]} for each in said]
        assert (says in told(rows, f"{num_repeat}")) == is_told


STOPPED = "\n\n[Stopped by the user]"


@pytest.mark.parametrize(
    ("begin", "end", "number", "says"),
    [
        ("", STOPPED, 3, "end with the line `[Stopped by the user]`"),
        ("", " END", 28, "end with the word `END`"),
        ("", " <a>b</a>\n</c", 30, "end with the line `</c`"),
        ("", STOPPED, 2, None),
        ("", " END", 20, None),
        ("", "\n```", 30, None),
        ("analysis", "", 28, "begin their answer with the word `analysis`"),
        ("Thinking...\n", "", 30, "begin their answer with the line `Thinking...`"),
        ("analysis", "", 20, None),
        ("```\n", "", 30, None),
        ("Well. ", "", 30, None),
    ],
)
def test_marks_with_which_many_answers_begin_or_end_are_reported(told, begin, end, number, says):
    answers = [f"{begin}At {k}.{end}" if k < number else f"At {k}." for k in range(30)]
    found = told([{"prompt": f"{k}?", "completion": each} for k, each in enumerate(answers)])
    if says is None:
        assert "end with the" not in found and "begin their answer" not in found
    else:
        assert f"{number} of its first 30 rows {says}" in found


WORDS = "The ferry from Oban to Craignure leaves at {} in the morning and takes most of an hour where the sea is calm, "


@pytest.mark.parametrize(
    ("cut", "number", "is_told"), [(120, 8, True), (120, 2, False), (60, 8, False), (None, 8, False)]
)
def test_answers_that_are_cut_at_one_length_are_reported(told, cut, number, is_told):
    answers = [(WORDS.format(k) + "k" * 40)[:cut] + "," * (cut is None) * k for k in range(number)]
    rows = [{"instruction": "When?", "output": each} for each in (*answers, "At six.", "At ten.")]
    found = told(rows)
    assert (f"{number} of its first {number + 2} rows have an answer of {cut} characters" in found) == is_told


@pytest.mark.parametrize(("says", "named"), [(("ja", "nein"), "(ja, nein)"), ((2, 1), "(2, 1)"), ((True, "yes"), None)])
def test_a_flag_that_says_neither_yes_nor_no_is_named_as_not_read(told, says, named):
    rows = [{"instruction": f"{k}?", "output": "At six.", "keep": says[k % 2]} for k in range(4)]
    found = told(rows)
    assert f"fields of rows that are not read: `keep` {named}" in found if named else "`keep`" not in found


def _turns(*said):
    roles = cycle(["assistant", "user"])
    return {"messages": [{"role": next(roles), "content": each} for each in said]}


@pytest.mark.parametrize(("first", "is_told"), [("At {}.", True), ("Hello! I am {0:.0}the bot.", False)])
def test_conversations_that_stand_newest_first_are_reported_and_greetings_are_not(told, first, is_told):
    found = told([_turns(first.format(str(k)), "And then?", f"At {k}.", "When does it leave?") for k in range(6)])
    assert ("6 of its first 6 rows begin with an answer and end in a question" in found) == is_told


@pytest.mark.parametrize(
    ("numbers", "is_told"),
    [
        ([1, 2, 3, 1, 1, 2], True),
        (["0", "1", "2", "0", "1", "0"], True),
        ([1, 2, 1, 2, 1, 2], False),
        ([0, 1, 2, 3, 4, 5], False),
        ([1, 2, 3, 1, 3, 1], False),
        ([1, 2, 3, 1, None, 1], False),
        ([4, 5, 6, 4, 5, 4], False),
    ],
)
def test_rows_that_are_numbered_anew_may_be_turns_that_lack_those_before(told, numbers, is_told):
    asked = [{"instruction": f"{k}?", "output": "At six.", "at": number} for k, number in enumerate(numbers)]
    says = "its rows are numbered by `at`, which begins anew"
    assert (says in told(asked, "asked")) == is_told
    before = [{**_turns("1?", "At six.", "2?"), "at": number} for number in numbers]
    before = [{**row, "messages": [{"role": "user", "content": "0?"}, *row["messages"]]} for row in before]
    assert says not in told(before, "before", history="exact")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[INST] 1+1? [/INST] 2.", "begin as prompts of a model do (`[INST]`)"),
        ("<start_of_turn>user\n1+1?<end_of_turn>\n<start_of_turn>model\n2.", "(`<start_of_turn>user`)"),
        ("system\nBe brief.\nThe sum is 2.", "begin as prompts of a model do (`system`)"),
        ("A system is a whole. [INST] is a mark.", None),
        ("### Human: 1+1?### Assistant: 2.", "'Human:' … 'Assistant:'"),
        ("Below is a task.\n\n### Instruction:\nAdd.\n\n### Response:\n2", "'Instruction:' … 'Response:'"),
        ("Frage: 1+1?\nAntwort: 2.\nFrage: 1+2?\nAntwort: 3.", "'Frage:' … 'Antwort:'"),
        ("**Patient:** 1+1?\n\n**Dr. Ode:** 2.", "'**Patient:**' … '**Dr. Ode:**'"),
        ("### 指示\n1+1?\n\n### 応答\n2", "'### 指示' … '### 応答'"),
        ("She asked the assistant: is it 2? Human: no.", None),
        ("Frage: 1+1?\nFrage: 1+2?\nAntwort: 3.", None),
        ("Title: One\nBy: Ann\nYear: 7\nText: It is one.", None),
    ],
)
def test_texts_that_are_prompts_or_dialogues_are_reported(told, text, says):
    found = told([{"text": f"{text} ({number})"} for number in range(8)])
    if says is None:
        assert "begin as prompts" not in found and "look like dialogues" not in found
    else:
        assert ("begin as prompts" in found) != ("texts look like dialogues" in found) and says in found


def test_dialogues_are_reported_under_another_name_and_beside_dates_of_a_table(told):
    texts = [f"### Human: 1+1?### Assistant: {number}." for number in range(8)]
    dated = pa.Table.from_pylist([{"text": text, "at": dt.date(2024, 1, 1)} for text in texts])
    named = told([{"sample": text} for text in texts], "named", columns={"text": "sample"})
    for found in (named, told(dated, "dated")):
        assert "texts look like dialogues" in found


@pytest.mark.parametrize(
    ("row", "columns"),
    [
        ({"prompt": "When?", "completion": "At six."}, "{instruction: prompt, output: completion}"),
        ({"prompt": "When?", "completion": "At six.", "label": True}, "{instruction: prompt, output: completion}"),
        ({"prompt": "When?", "chosen": "At six.", "rejected": "At ten."}, "{instruction: prompt}"),
        ({"q": "When?", "a": "At six."}, "{instruction: q, output: a}"),
        ({"instruction": "When?", "output": "At six."}, None),
        ({"prompt": [{"role": "user", "content": "When?"}], "completion": "At six."}, None),
    ],
)
def test_prompts_that_are_texts_are_reported_with_what_uses_the_template(told, tmp_path, row, columns):
    own = {"prompt": "q", "completion": "a"} if "q" in row else {}
    _, _, hint = told([row], columns=own).partition("without the chat template; ")
    assert settings_in(hint) == ([] if columns is None else [f"sources.columns={columns}"])
    if columns is not None:
        assert "without the chat template" not in told([row], "chat", columns=yaml.safe_load(columns))
        with Cache.open(tmp_path / "chat") as cache:
            view = view_row(cache, cache.manifest.inputs[0].path, 0)
        assert "user\nWhen?" in "".join(run.text for run in view.documents[0].runs)


@pytest.mark.parametrize("text", ["- \n" * 20_000, "User: no answer\n" * 4000, "User:" + " " * 40_000])
def test_long_texts_are_searched_for_headers_in_one_pass(told, text):
    """A pattern that begins anew in every line would take minutes for one of them."""
    assert "look like dialogues" not in told([{"text": text}])


@pytest.mark.parametrize(
    ("field", "names", "key", "shared", "is_asked"),
    [
        ("role", ["prompter"], None, "", True),
        ("role", ["user"], None, "", True),
        ("role", ["editor"], None, "", False),
        ("role", [3], None, "", False),
        ("user", "010232", "thread", "000111", True),
        ("sender_id", "010232", "topic", "000111", True),
        ("speaker", "010212", "channel_id", "000000", True),
        ("author", "001122", "channel", "010101", False),
        ("author", "010101", "thread", "012345", True),
        ("author", "012345", "category", "000111", False),
        ("editor", "010232", "thread", "000111", False),
    ],
)
def test_a_build_asks_about_texts_of_a_few_speakers_who_take_turns(told, field, names, key, shared, is_asked):
    named = cycle(f"U{name}" if key else name for name in names)
    rows = [{"text": f"1+{number}?", field: next(named)} for number in range(6)]
    for row, value in zip(rows, shared, strict=False):
        row[key] = f"discussion-{value}"
    with pytest.raises(InputError, match=f"`{field}`") if is_asked else nullcontext() as caught:
        told(rows)
    if is_asked:
        assert "each row is a single message" in caught.value.hint
        told(rows, ignore=[field])
