"""Chats of which some are copies of others, and what a report of `check` says of them."""

import random

from packer.store.cache import Cache

WORDS = [f"word{i}" for i in range(400)]


def chat(question, answer, **fields):
    return {"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}], **fields}


def some_rows(number, seed=1):
    """Chats that share nothing."""
    chance = random.Random(seed)
    texts = [" ".join(chance.choices(WORDS, k=12)) for _ in range(2 * number)]
    return [chat(texts[2 * i], texts[2 * i + 1]) for i in range(number)]


def with_copies(rows, seed=2):
    """Rows, some with a copy, some with their prompt and another answer, some with a word of their prompt changed."""
    chance, found = random.Random(seed), []
    for row in rows:
        found.append(row)
        question, answer = (message["content"] for message in row["messages"])
        kind = chance.randrange(10)
        if kind == 0:
            found.append(chat(question, answer))
        elif kind == 1:
            found.append(chat(f" {question.upper()}", " ".join(chance.choices(WORDS, k=9))))
        elif kind == 2:
            found.append(chat(question.replace(question.split()[-1], "changed"), " ".join(chance.choices(WORDS, k=9))))
        elif kind == 3:
            found.append(chat(question, " ".join(chance.choices(WORDS, k=9))))
    chance.shuffle(found)
    return found


def levels(report):
    return {each.code: each.level for each in report.findings}


def counts(report):
    return {each.code: each.count for each in report.findings}


def prompt(row):
    return row["messages"][0]["content"]


def rows_of_split(folder, split):
    """The rows of each input that have documents in a split."""
    found = {}
    with Cache.open(folder) as cache:
        places = zip(*(each.tolist() for each in cache.documents(split).origins()), strict=True)
        for source, row in sorted({*places}):
            found.setdefault(cache.manifest.inputs[source].path, []).append(row)
    return found
