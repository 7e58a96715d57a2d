"""Near copies, leaks and benchmark questions in real corpora."""

import json
import random
import re
from collections import Counter, defaultdict

import numpy as np
import pytest
import row_likeness

from packer.curate.contamination import Questions
from packer.curate.near import nearest
from packer.curate.signatures import signatures, words_of

pytestmark = pytest.mark.real


def alpaca(real, number):
    with (real / "corpora" / "alpaca_en_52k.jsonl").open(encoding="utf-8") as file:
        rows = [json.loads(line) for line, _ in zip(file, range(number), strict=False)]
    return ["\n".join(row[name] for name in ("instruction", "input", "output")) for row in rows]


@pytest.mark.slow
def test_every_near_copy_of_a_real_row_is_found_and_nothing_else(real):
    """Against all pairs, by their literal sets: precision 1, recall at least .999 at a similarity of .8."""
    chance, rows = random.Random(3), alpaca(real, 1500)
    changed = []
    for row in rows:
        words = row.split(" ")
        for _ in range(chance.randint(1, max(1, len(words) // 12))):
            words[chance.randrange(len(words))] = chance.choice(["alpha", "beta", "gamma"])
        changed.append(" ".join(words))
    sets = [row_likeness.shingles(row, 3) for row in rows]
    postings = defaultdict(list)
    for number, grams in enumerate(sets):
        for gram in grams:
            postings[gram].append(number)
    expected = {}
    for number, row in enumerate(changed):
        grams = row_likeness.shingles(row, 3)
        shared = Counter(other for gram in grams for other in postings.get(gram, ()))
        best = max((row_likeness.jaccard(grams, sets[other]) for other in shared), default=0)
        if best >= 0.8 and len(grams) < 256:
            expected[number] = best
    words = words_of([*rows, *changed])
    signed = signatures(words, words.offsets[:-1], words.offsets[1:], 3)
    found = nearest(signed, np.arange(len(rows)), np.arange(len(rows), 2 * len(rows)), 0.8)
    there = dict(zip((found.row - len(rows)).tolist(), found.similarity.tolist(), strict=True))
    short = {number for number in there if len(row_likeness.shingles(changed[number], 3)) < 256}
    assert short <= set(expected) and len(short) >= 0.999 * len(expected) > 400
    assert all(there[number] == expected[number] for number in short)


@pytest.mark.slow
def test_questions_of_gsm8k_are_found_however_they_are_wrapped_and_in_no_row_of_alpaca(real):
    with (real / "corpora" / "gsm8k_1319.jsonl").open(encoding="utf-8") as file:
        asked = [json.loads(line)["question"] for line in file]
    questions = Questions([asked])
    assert questions.num_untestable == 0
    forms = [
        asked,
        [f"Solve this. Think step by step.\n\n{each}\n\nGive a number." for each in asked],
        [each.upper() for each in asked],
        [re.sub(r"(.{40}\S*) ", r"\1\n", each) for each in asked],
    ]
    for rows in forms:
        hits = questions.find(words_of(rows), np.arange(len(rows) + 1))
        assert np.array_equal(hits.row, np.arange(len(rows))) and np.array_equal(hits.question, hits.row)
    rows = alpaca(real, 10_000)
    assert not len(questions.find(words_of(rows), np.arange(len(rows) + 1)).row)
