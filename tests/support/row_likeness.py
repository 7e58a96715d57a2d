"""What makes rows alike, written out letter by letter: words, shingles, Jaccard similarity, who is dropped."""

import re
import unicodedata

SPACELESS = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u19e0-\u19ff\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua9e0-\ua9ff\uaa60-\uaa7f\uf900-\ufaff\U0001b000-\U0001b16f\U00020000-\U0003ffff"
IS_SPACELESS = re.compile(f"[{SPACELESS}]")
IS_SELECTOR = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]")


def words(text):
    """The words of a text."""
    found, run = [], ""
    for character in unicodedata.normalize("NFKC", text).casefold():
        is_part = unicodedata.category(character)[0] in "LMN" and not IS_SELECTOR.match(character)
        if is_part and not IS_SPACELESS.match(character):
            run += character
            continue
        found += [run] * bool(run) + [character] * is_part
        run = ""
    return found + [run] * bool(run)


def shingles(text, n):
    """Different runs of n words; all words where they are fewer."""
    found = words(text)
    if len(found) < n:
        return {tuple(found)} if found else set()
    return {tuple(found[i : i + n]) for i in range(len(found) - n + 1)}


def jaccard(first, second):
    """Similarity of two sets; nothing is like an empty one."""
    return len(first & second) / len(first | second) if first and second else 0.0


def dropped(texts, n, threshold):
    """Row → (the earlier kept row most like it, similarity), for rows that one is like; rows of one set are one row."""
    sets, found = [shingles(text, n) for text in texts], {}
    for row in range(len(texts)):
        same = sets.index(sets[row])
        if same < row and sets[row]:
            found[row] = found.get(same, (same, 1.0))
            continue
        kept = [(jaccard(sets[row], sets[other]), -other) for other in range(row) if other not in found]
        if kept and max(kept)[0] >= threshold:
            found[row] = (-max(kept)[1], max(kept)[0])
    return found


def hits(benchmark, rows, n, common, cover):
    """Row → the questions found in it, each with its cover; rows are lists of messages."""
    split = [words(question) for question in benchmark]
    grams = [{tuple(each[i : i + n]) for i in range(len(each) - n + 1)} for each in split]
    counts = {}
    for question in {tuple(each) for each in split}:
        for gram in {question[i : i + n] for i in range(len(question) - n + 1)}:
            counts[gram] = counts.get(gram, 0) + 1
    own = [{gram for gram in each if counts[gram] < common} for each in grams]
    found = {}
    for row, messages in enumerate(rows):
        said = [words(message) for message in messages]
        whole = [word for message in said for word in message]
        there = {tuple(whole[i : i + n]) for i in range(len(whole) - n + 1)}
        for number, each in enumerate(own):
            if each and len(each & there) / len(each) >= cover:
                found.setdefault(row, {})[number] = len(each & there) / len(each)
            if 0 < len(split[number]) < n and split[number] in said:
                found.setdefault(row, {})[number] = 1.0
    return found
