"""Names that data sets use for the fields of a row. They say what is proposed, and decide nothing else but one thing:
what a name such as `cot` says to be reasoning counts as a text, however short it is.
"""

import re
import unicodedata
from collections.abc import Sequence

SYNONYMS = {
    "instruction": (
        *("instruction", "question", "prompt", "query", "problem", "inputs", "user", "human", "userinput", "questions"),
    ),
    "output": (
        *("output", "answer", "response", "completion", "solution", "target", "targets", "reply", "attempt"),
        *("generation", "answers", "responses", "outputs", "completions", "solutions", "content", "assistant", "ai"),
    ),
    "input": ("input", "context", "contexts", "passage", "passages", "document", "documents", "article", "paragraph"),
    "system": (
        *("system", "sys", "systemprompt", "systemmessage", "systeminstruction", "systeminstructions"),
        *("sysprompt", "metainstruction"),
    ),
    "reasoning": (
        *("reasoning", "reasoningcontent", "reasoningtext", "reasoningtrace", "cot", "chainofthought"),
        *("think", "thinking", "thinkingcontent", "thought", "thoughts", "rationale"),
    ),
    "tools": ("tools", "availabletools", "tooldefinitions", "toolschemas"),
    "history": ("history",),
}
"""Fields of schema `alpaca` and the names that data sets use for them, reduced to lower-case letters and digits."""

_FIELD_BY_SYNONYM = {synonym: field for field, synonyms in SYNONYMS.items() for synonym in synonyms}

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


_WORSE = frozenset(
    {"rejected", "dispreferred", "unpreferred", "loser", "losing", "worse", "worst", "bad", "wrong", "incorrect"}
)
_BETTER = frozenset({"chosen", "preferred", "winner", "winning", "better"})
"""Words that say which of two answers a field is."""

_RIGHT = frozenset(
    {"correct", "good", "pass", "passed", "passes", "valid", "verified", "accepted", "approved", "completed"}
    | {"finished", "success", "successful", "succeeded", "solved", "resolved", "liked", "up", "thumbs_up", "👍"}
)
_NOT_RIGHT = _WORSE | {"fail", "failed", "failure", "error", "down", "thumbs_down", "👎"}
"""What verdicts say."""

_SPLITS = {"train", "training"}, {"test", "dev", "val", "valid", "validation", "eval", "holdout", "heldout", "held_out"}
"""Names of what is trained, and of what is held out."""

_YES_OR_NO = ({"y", "n"}, {"t", "f"}, {"p", "f"})

_DENIES = re.compile(r"(?:un|in|im|il|ir|dis|mis|non|not|no)[\W_]*(\w+)")

_SAYS_NOTHING = frozenset({"text", "full", "value", "content", "parts", "trajectory", "trajectories"})


def meant_field(path: str) -> str | None:
    """Return the field that a name or a path usually stands for, or None. Its last words decide, but for a number.

    The worse of two answers is `rejected`, and never an answer to imitate.

    Example:
        >>> meant_field("System_Prompt"), meant_field("deepseek_reasoning"), meant_field("topic")
        ('system', 'reasoning', None)
        >>> meant_field("question.text"), meant_field("bad_answer"), meant_field("winner")
        ('instruction', 'rejected', 'output')
    """
    words = words_of(path)
    while len(words) > 1 and (words[-1] in _SAYS_NOTHING or words[-1].isdigit()):
        words.pop()
    if not _WORSE.isdisjoint(words):
        return "rejected"
    ends = ("".join(words[start:]) for start in range(len(words)))
    found = next((_FIELD_BY_SYNONYM[end] for end in ends if end in _FIELD_BY_SYNONYM), None)
    return found or (None if _BETTER.isdisjoint(words[-1:]) else "output")


def words_of(name: str) -> list[str]:
    """Return the words of a name, and its numbers, in lower case.

    Example:
        >>> words_of("model_1_response"), words_of("responseA")
        (['model', '1', 'response'], ['response', 'a'])
    """
    return [word.lower() for word in _WORD.findall(name)]


def verdicts(values: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return which of some values say that a row is right, and which say the contrary.

    A word says the contrary of what it denies, whether that is good or bad. Of two single characters, nobody knows; of
    Latin letters, most pairs are names of something (`M`, `F`). Splits are held out beside `train`, which beside
    `bus` is a topic.

    Example:
        >>> verdicts(["approved", "pending", "rejected"]), verdicts(["not_solved", "other"])
        ((['approved'], ['rejected']), ([], ['not_solved']))
        >>> verdicts(["toxic", "nontoxic"]), verdicts(["N", "Y"]), verdicts(["F", "M"])
        ((['toxic'], ['nontoxic']), (['N'], ['Y']), ([], []))
        >>> verdicts(["dev", "train"]), verdicts(["bus", "train"])
        ((['train'], ['dev']), ([], []))
    """
    if len(values) == 2 and all(map(is_character, values)):
        are_names = all(each.isascii() and each.isalpha() for each in values)
        says = not are_names or {each.lower() for each in values} in _YES_OR_NO
        return ([values[0]], [values[1]]) if says else ([], [])
    words = [value.lower() for value in values]
    trained, held_out = ([value for value in values if value.lower() in split] for split in _SPLITS)
    if trained and held_out:
        return trained, held_out
    known = _RIGHT.union(words)
    denied = {word: found[1] for word in words if (found := _DENIES.fullmatch(word)) and found[1] in known}
    right = [value for value in values if value.lower() in _RIGHT.union(denied.values())]
    return right, [value for value in values if value.lower() in _NOT_RIGHT.union(denied)]


def is_mark(value: str) -> bool:
    """Whether a value is a sign that tables mark rows with, such as x or ✓: no other letter, no dash, no currency."""
    return is_character(value) and (value in "xX" or unicodedata.category(value[0]) in ("Po", "Sm", "So"))


def is_character(value: str) -> bool:
    """Whether a value is a single letter or sign, such as Y or ✔️, and no digit."""
    return len(value.rstrip("\ufe0f")) == 1 and not value.isdigit()
