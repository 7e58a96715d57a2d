"""Every defect planted in prepared rows is found, with its count; a clean dataset has no finding."""

import json
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import twins
from audit.foreign.prepared import ANSWER, BOS, HEADER, NEWLINE, PROMPT, STOP, Row, Words, with_bos, write
from hypothesis import given
from hypothesis import strategies as st
from search_effort import percent_of_examples
from tokenizers import Tokenizer

from packer.audit.foreign import CODES, audit_foreign
from packer.audit.foreign.rows import REST, TokenRow, find_parts
from packer.audit.foreign.tokenizer_facts import load_facts

QUESTIONS = ("why is the sky blue?", "and at night?\nwhy", "\n\nhm", "count: 1 2 3")
ANSWERS = ("light is scattered", "it is dark\n\n1. no sun", "well", "x " * 30, "\nfirst a newline")


@pytest.fixture(scope="module")
def words(starter, tmp_path_factory):
    return Words(with_bos(starter, tmp_path_factory.mktemp("tokenizer") / "folder"))


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    return tmp_path_factory.mktemp("prepared")


def found(folder, words, **named):
    report = audit_foreign(folder, tokenizer=named.pop("tokenizer", words.folder), **named)
    codes = {each.code: (each.count, each.num_rows) for each in report.findings if each.level != "note"}
    return codes, report


def new(scratch):
    return Path(tempfile.mkdtemp(dir=scratch)) / "rows"


CHATS = st.lists(st.tuples(st.sampled_from(QUESTIONS), st.sampled_from(ANSWERS)), min_size=1, max_size=3)


def one_of(data, items):
    return data.draw(st.sampled_from(items))


def labels_shifted(data, rows, words):
    some = data.draw(st.sets(st.sampled_from(range(len(rows))), min_size=1))
    for number in some:
        rows[number].labels = [*rows[number].labels[1:], -100]
    return {"labels_shifted": (len(some), len(some))}


def labels_foreign(data, rows, words):
    row = one_of(data, rows)
    first, _ = one_of(data, row.answers())
    row.labels[first] = next(i for i in range(9, 99) if i not in (row.ids[first], row.ids[first + 1]))
    return {"labels_foreign": (1, 1)}


def ids_outside(data, rows, words):
    row = one_of(data, rows)
    place = one_of(data, row.places(PROMPT)[2:-2])
    row.ids[place] = one_of(data, [words.vocab_size, words.vocab_size + 7, -1])
    return {"ids_outside": (1, 1)}


def bos_doubled(data, rows, words):
    some = data.draw(st.sets(st.sampled_from(range(len(rows))), min_size=1))
    for number in some:
        rows[number].ids.insert(0, words.bos)
        rows[number].labels.insert(0, -100)
        rows[number].kinds.insert(0, BOS)
    return {}  # the second is no beginning


def bos_missing(data, rows, words):
    row = one_of(data, rows)
    del row.ids[0], row.labels[0], row.kinds[0]
    return {}  # rows may leave it to the model's collator


def cut(data, rows, words):
    row = one_of(data, rows)
    first, stop = row.answers()[-1]
    end = data.draw(st.integers(first + 1, stop))
    for column in (row.ids, row.labels, row.kinds):
        del column[end:]
    return {"no_terminator": (1, 1)}


def cut_on_the_left(data, rows, words):
    row = one_of(data, rows)
    first, stop = row.answers()[0]
    begin = data.draw(st.integers(first, stop - 1))
    for column in (row.ids, row.labels, row.kinds):
        del column[:begin]
    return {} if row.places(HEADER) else {"no_header": (1, 1)}


def behind_trained(data, rows, words):
    row = one_of(data, rows)
    _, stop = one_of(data, row.answers())
    row.labels[stop + 1] = row.ids[stop + 1]
    return {}  # harmless, and what TRL does


def padding_trained(data, rows, words):
    row = one_of(data, rows)
    count = data.draw(st.integers(1, 3))
    row.ids += [words.pad] * (count + 1)
    row.labels += [words.pad] * count + [-100]
    row.kinds += ["pad"] * (count + 1)
    return {"padding_trained": (count, 1)}


def joined_without_borders(data, rows, words):
    row = one_of(data, rows)
    other = Row(words.conversation([("more?", "no")]))
    row.ids += other.ids
    row.labels += other.labels
    row.kinds += other.kinds
    return {"borders_missing": (1, 1)}


def other_header(data, rows, words):
    row = one_of(data, rows)
    keep = [place for place, kind in enumerate(row.kinds) if kind != HEADER]
    row.ids, row.labels = [row.ids[p] for p in keep], [row.labels[p] for p in keep]
    row.kinds = [row.kinds[p] for p in keep]
    return {"no_header": (1, 1)}


DEFECTS = [
    *(labels_shifted, labels_foreign, ids_outside, bos_doubled, bos_missing, cut, cut_on_the_left),
    *(behind_trained, padding_trained, joined_without_borders, other_header),
]
"""One for every check of rows, but for what is trained, which is compared with a literal reading below."""


@percent_of_examples(50)
@given(data=st.data(), plant=st.sampled_from(DEFECTS))
def test_a_planted_defect_is_found_with_its_count_and_nothing_else(scratch, words, data, plant):
    rows = [Row(words.conversation(data.draw(CHATS))) for _ in range(data.draw(st.integers(1, 5)))]
    expected = plant(data, rows, words)
    counts, _ = found(write(new(scratch), rows), words)
    assert counts == expected


@percent_of_examples(15)
@given(data=st.data())
def test_a_clean_dataset_has_no_finding(scratch, words, data):
    rows = [
        Row(*[words.conversation(data.draw(CHATS)) for _ in range(data.draw(st.integers(1, 3)))])
        for _ in range(data.draw(st.integers(1, 4)))
    ]
    how = data.draw(st.sampled_from(["seq_lengths", "position_ids", "both"]))
    columns = {
        "seq_lengths": [row.seq_lengths for row in rows] if how != "position_ids" else None,
        "position_ids": [row.positions() for row in rows] if how != "seq_lengths" else None,
    }
    counts, report = found(write(new(scratch), rows, **columns), words)
    assert counts == {} and report.ok
    assert report.trained == sum(label != -100 for row in rows for label in row.labels)
    assert report.count("note") == 0


@percent_of_examples(30)
@given(data=st.data())
def test_borders_that_are_missing_or_trained_are_found(scratch, words, data):
    rows = [Row(words.conversation(data.draw(CHATS)), words.conversation(data.draw(CHATS))) for _ in range(3)]
    row = one_of(data, rows)
    lengths, positions = [r.seq_lengths for r in rows], [r.positions() for r in rows]
    number, expected = rows.index(row), {"borders_missing": (1, 1)}
    defect = data.draw(st.sampled_from(["moved", "trained", "unreset"]))
    if defect == "moved":
        lengths[number] = [row.seq_lengths[0] + 1, row.seq_lengths[1] - 1]
    elif defect == "unreset":
        lengths = None
        positions[number] = list(range(len(row.ids)))
    else:
        row.labels[row.seq_lengths[0]] = row.ids[row.seq_lengths[0]]
        expected = {"prompt_trained": (1, 1)}
    counts, _ = found(write(new(scratch), rows, seq_lengths=lengths, position_ids=positions), words)
    if defect == "trained":
        counts.setdefault("no_terminator", (1, 1))
        expected["no_terminator"] = (1, 1)
    assert counts == expected


@percent_of_examples(30)
@given(data=st.data())
def test_the_rest_of_a_document_in_a_sequence_of_its_own_is_no_prompt(scratch, words, data):
    """As packers write it that cut documents. Prompts of the sequence behind an answer that is cut are checked."""
    whole = words.conversation([*data.draw(CHATS), ("and then?", "it is light " * 5)])
    answer = [place for place, (kind, _) in enumerate(whole) if kind == ANSWER][-10:]
    cut = data.draw(st.sampled_from(answer[1:]))
    row = Row(whole[:cut], words.conversation([("why?", "yes")]), whole[cut:])
    row.labels[row.starts()[2]] = -100
    expected = {"no_terminator": (1, 1)}
    place = row.starts()[1] + data.draw(st.integers(1, 5))
    if data.draw(st.booleans()):
        row.labels[place] = row.ids[place]
        expected["prompt_trained"] = (1, 1)
    counts, _ = found(write(new(scratch), [row], seq_lengths=[row.seq_lengths]), words)
    assert counts == expected


def test_words_behind_the_marker_of_a_role_begin_no_conversation(starter, tmp_path):
    """Where that marker is the BOS, as ChatML's is in some tokenizers, it is followed by the word `user`."""
    folder = Path(shutil.copytree(starter / "tokenizer", tmp_path / "tokenizer"))
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(config | {"bos_token": "<|im_start|>"}))
    facts = load_facts(folder, None)
    assert facts.openings == (facts.bos_id,)


@pytest.mark.parametrize("pads", [1, 5])
@pytest.mark.parametrize("how", ["pad", "stop", "mask", "trained"])
def test_lengths_that_leave_out_the_padding_fit_their_rows(scratch, words, pads, how):
    rows = [Row(*[words.conversation([(question, "yes")]) for question in ("why?", "how?")]) for _ in range(2)]
    for row in rows:
        row.ids += [words.stop if how == "stop" else words.pad] * pads
        row.labels += [-100] * pads
    if how == "trained":
        rows[0].labels[-1] = words.pad
    columns = {"seq_lengths": [row.seq_lengths for row in rows], "position_ids": [row.positions() for row in rows]}
    if how == "mask":
        columns["attention_mask"] = [row.mask + [0] * pads for row in rows]
    counts, _ = found(write(new(scratch), rows, **columns), words)
    assert counts == ({"padding_trained": (1, 1)} if how == "trained" else {})


def test_numbers_in_the_attention_mask_are_borders(scratch, words):
    rows = [Row(words.conversation([("a", "b")]), words.conversation([("c", "d")])) for _ in range(2)]
    mask = [[1] * row.seq_lengths[0] + [2] * row.seq_lengths[1] for row in rows]
    counts, _ = found(write(new(scratch), rows, attention_mask=mask), words)
    assert counts == {}
    ones = [[1] * len(row.ids) for row in rows]
    counts, _ = found(write(new(scratch), rows, attention_mask=ones), words)
    assert counts == {"borders_missing": (2, 2)}


def test_a_stop_token_that_is_masked_as_padding_is_found_where_pad_is_eos(scratch, starter, words):
    tokenizer = starter / "tokenizer"  # its pad token is a stop token
    plain = Words(tokenizer)
    end = plain.backend.token_to_id("<|endoftext|>")
    rows = []
    for _ in range(3):
        row = Row(words.conversation([("a", "b")])[1:-2])
        row.ids += [end, end, end]
        row.labels += [-100] * 3  # the first one was the end of the answer, the others padding
        rows.append(row)
    counts, report = found(write(new(scratch), rows), words, tokenizer=tokenizer)
    assert counts["terminator_masked"] == (3, 3)
    assert report.padding == 6
    masks = [[1] * (len(row.ids) - 3) + [0] * 3 for row in rows]
    counts, _ = found(write(new(scratch), rows, attention_mask=masks), words, tokenizer=tokenizer)
    assert "terminator_masked" not in counts and counts["no_terminator"] == (3, 3)


def test_columns_of_other_lengths_are_reported_and_the_other_rows_examined(scratch, words):
    rows = [Row(words.conversation([("a", "b")])) for _ in range(4)]
    rows[2].labels.append(-100)
    place = rows[3].places(PROMPT)[1]
    rows[3].labels[place] = rows[3].ids[place]
    counts, report = found(write(new(scratch), rows), words)
    assert counts == {"columns_differ": (1, 1), "prompt_trained": (1, 1)}
    labels = {finding.code: finding.examples[0].label for finding in report.findings}
    assert labels == {"columns_differ": "row 2", "prompt_trained": "row 3"}


def test_rows_of_another_tokenizer_are_still_told_that_nothing_is_trained(scratch, words):
    rows = [Row(words.conversation([("a", "b")])) for _ in range(3)]
    for row in rows:
        row.ids[row.places(PROMPT)[1]], row.labels = words.vocab_size, [-100] * len(row.ids)
    counts, _ = found(write(new(scratch), rows), words)
    assert {"ids_outside", "nothing_trained"} <= counts.keys()


def test_masks_say_what_is_trained_where_there_are_no_labels(scratch, words):
    rows = [Row(words.conversation([("a", "b"), ("c", "d")])) for _ in range(2)]
    masks = [[int(label != -100) for label in row.labels] for row in rows]
    for name in ("completion_mask", "assistant_masks"):
        counts, report = found(write(new(scratch), rows, labels=None, **{name: masks}), words)
        assert counts == {} and name in report.labels_from
    both = {"completion_mask": [[1] * len(m) for m in masks], "assistant_masks": masks}
    assert found(write(new(scratch), rows, labels=None, **both), words)[0] == {}
    counts, report = found(write(new(scratch), rows, labels=None), words)
    assert "prompt_trained" in counts and "nothing" in report.labels_from


def test_a_template_that_writes_roles_as_text_leaves_prompts_not_examined(scratch, words, tmp_path):
    template = tmp_path / "plain.jinja"
    template.write_text(
        "{% for m in messages %}{{ m.role + ': ' + m.content + '\\n' }}{% if m.role == 'assistant' %}<|im_end|>{% endif %}"
        "{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"
    )
    row = Row(words.conversation([("a", "b")]))
    row.labels = list(row.ids)
    counts, report = found(write(new(scratch), [row]), words, template=template)
    assert counts.keys().isdisjoint({"prompt_trained", "no_header"})
    assert any("prompts" in each.message for each in report.findings if each.code == "not_checked")


def test_line_breaks_that_are_added_tokens_do_not_mark_a_header(tmp_path):
    folder = twins.line_breaks(tmp_path / "twin")
    facts = load_facts(folder, None)
    backend = Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert backend.decode(facts.header.tolist(), skip_special_tokens=False) == "<start_of_turn>model"
    assert facts.spaces[[backend.token_to_id(text) + 1 for text in ("\n", "\n\n")]].all()


@pytest.mark.parametrize("block", ["", "<think>\\n\\n</think>\\n\\n", "<think>\\n"])
def test_reasoning_that_a_prompt_opens_or_closes_is_no_part_of_the_header(words, tmp_path, block):
    template = tmp_path / "thinks.jinja"
    template.write_text(
        "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + ('BLOCK' if m.role == 'assistant' else '') }}"
        "{{ m.content + '<|im_end|>\\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\nBLOCK' }}{% endif %}".replace("BLOCK", block)
    )
    header = load_facts(words.folder, template).header.tolist()
    assert words.backend.decode(header, skip_special_tokens=False) == "<|im_start|>assistant"


def test_a_sample_is_spread_over_the_rows_and_all_rows_are_examined_where_asked(scratch, words):
    rows = [Row(words.conversation([("a", "b")])) for _ in range(50)]
    rows[49].labels = [-100] * len(rows[49].ids)
    folder = write(new(scratch), rows)
    _, report = found(folder, words, sample=10)
    assert (report.rows_looked_at, report.num_rows, report.ok) == (10, 50, True)
    counts, report = found(folder, words, sample=None)
    assert report.rows_looked_at == 50 and counts["nothing_trained"] == (1, 1)
    again = audit_foreign(folder, tokenizer=words.folder, sample=10)
    assert again == audit_foreign(folder, tokenizer=words.folder, sample=10)


def test_an_example_shows_the_tokens_that_are_meant(scratch, words):
    row = Row(words.conversation([("is it the moon?", "yes, the moon")]))
    _, stop = row.answers()[0]
    row.labels[stop] = -100
    _, report = found(write(new(scratch), [row]), words)
    (finding,) = report.findings
    (example,) = finding.examples
    assert example.text[slice(*example.mark)] == "<|im_end|>"
    assert example.text[: example.mark[0]].endswith("yes, the moon")
    assert (example.label, example.note) == ("row 0", f"token {stop}")


def test_rows_of_another_template_are_not_said_to_begin_within_a_message(scratch, words):
    rows = [Row([(ANSWER, i) for i in words.ids(f"### Q\nquestion {number}\n### A\nyes")]) for number in range(3)]
    counts, _ = found(write(new(scratch), rows), words)
    assert counts == {"no_header": (3, 3), "no_terminator": (3, 3)}


def test_the_page_of_audits_names_every_code_with_its_level_and_meaning():
    page = (Path(__file__).resolve().parents[3] / "docs/how-to/audit.md").read_text("utf-8")
    for code, kind in CODES.items():
        assert f"| `{code}` | {kind.level} | {kind.meaning} |\n" in page
    assert page.count("\n| `") == len(CODES)


def literal_counts(rows, words):
    """What training these labels does, token by token in Python."""
    counts = dict.fromkeys(("prompt_trained", "terminator_masked", "no_terminator", "nothing_trained"), 0)
    for row in rows:
        n = len(row.ids)
        trained = [label != -100 for label in row.labels]
        space = [not words.backend.decode([i], skip_special_tokens=False).strip() for i in row.ids]
        counts["nothing_trained"] += not any(trained[1:])
        kinds = list(row.kinds)
        for t in range(1, n):
            if kinds[t] == NEWLINE:
                kinds[t] = "behind" if kinds[t - 1] == STOP else "gap"
        for first, stop in row.answers():
            begin = next(t for t in range(first, stop + 1) if t == stop or not space[t])
            kinds[first:begin] = ["gap"] * (begin - first)  # white space at its beginning may be its header's
        for t in range(1, n):
            counts["prompt_trained"] += trained[t] and kinds[t] in (PROMPT, BOS)
        t = 0
        while t < n:
            if not trained[t]:
                t += 1
                continue
            end = t
            while end < n and trained[end]:
                end += 1
            closing = max((p for p in range(t, end) if not space[p]), default=t)
            if kinds[closing] in (ANSWER, "gap"):
                masked = end < n and row.ids[end] == words.stop
                counts["terminator_masked" if masked else "no_terminator"] += 1
            t = end
    return {code: count for code, count in counts.items() if count}


@percent_of_examples(50)
@given(data=st.data())
def test_whatever_is_trained_is_counted_as_a_literal_reading_counts_it(scratch, words, data):
    rows = [Row(words.conversation(data.draw(CHATS))) for _ in range(data.draw(st.integers(1, 3)))]
    for row in rows:
        for start in data.draw(st.lists(st.integers(0, len(row.ids) - 1), max_size=4)):
            stop = start + data.draw(st.integers(1, 12))
            is_trained = data.draw(st.booleans())
            for t in range(start, min(stop, len(row.ids))):
                row.labels[t] = row.ids[t] if is_trained else -100
    counts, _ = found(write(new(scratch), rows), words)
    assert {code: count for code, (count, _) in counts.items()} == literal_counts(rows, words)


def test_no_rows_and_rows_without_tokens_have_nothing_to_tell(scratch, words):
    counts, report = found(write(new(scratch), []), words)
    assert (counts, report.num_rows) == ({}, 0)
    rows = [Row([]), Row(words.conversation([("a", "b")])), Row([])]
    counts, report = found(write(new(scratch), rows), words)
    assert counts == {"nothing_trained": (2, 2)}
    columns = {"seq_lengths": [[], rows[1].seq_lengths, []], "position_ids": [[], rows[1].positions(), []]}
    assert found(write(new(scratch), rows, **columns), words)[0] == {"nothing_trained": (2, 2)}


def test_many_sequences_that_begin_within_a_message_take_linear_work(words):
    """Searching the whole row for the end of each would take minutes."""
    number = 150_000
    facts = replace(load_facts(words.folder, None), openings=(0,), stops=(6,), bos_opens=False)
    row = TokenRow(number=0, input_ids=np.full(2 * number, 3), columns={}, seq_lengths=np.full(number, 2))
    assert (find_parts(row, facts).kinds == REST).all()
