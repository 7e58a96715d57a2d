"""The selection of rows against plain Python, and what must hold whatever the rules are."""

import datetime as dt
import json
import re

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest, xxh3_128_digest

from packer.batches import InputRows
from packer.curate import TraitRules
from packer.curate.select import TEST, VALIDATION, select_rows, split_by_hash
from packer.curate.traits import TraitMaker
from packer.recipe.recipe import make_recipe
from packer.recipe.row_rules import Shares, Split
from packer.rejections import ROW_REASONS
from packer.source.row import FileRow
from packer.source.rows import read_batch

MISSING = object()


def value_at(row, path):
    """A field of a row, by its whole name or by the names on the way."""
    if path in row:
        return MISSING if row[path] is None else row[path]
    first, _, rest = path.partition(".")
    return value_at(row[first], rest) if rest and isinstance(row.get(first), dict) else MISSING


def kind_of(value):
    return "number" if type(value) in {int, float} else type(value)


def holds(rule, value):
    if value is MISSING:
        return False
    number = value if kind_of(value) == "number" else None
    if isinstance(value, str) and re.fullmatch(r"[0-9.]+", value):
        number = float(value)
    if "min" in rule and (number is None or number < rule["min"]):
        return False
    if "max" in rule and (number is None or number > rule["max"]):
        return False
    if "in" in rule and not any(value == other and kind_of(value) == kind_of(other) for other in rule["in"]):
        return False
    if "not_in" in rule and any(value == other and kind_of(value) == kind_of(other) for other in rule["not_in"]):
        return False
    if "matches" in rule and not (isinstance(value, str) and re.search(rule["matches"], value)):
        return False
    return not ("not_matches" in rule and not (isinstance(value, str) and not re.search(rule["not_matches"], value)))


def texts_of(row, of):
    said = {"answers": {"assistant"}, "prompts": {"user"}, "conversation": {"user", "assistant"}}[of]
    texts = [message["content"] for message in row["messages"] if message["role"] in said]
    return ["\n".join(texts)] if of == "conversation" else texts


def passes(rule, row, tokens):
    if "field" in rule:
        return holds(rule, value_at(row, rule["field"]))
    if "of" in rule:
        return all(holds(rule, text) and between(rule.get("chars"), len(text)) for text in texts_of(row, rule["of"]))
    return between(rule["tokens"], tokens) if "tokens" in rule else between(rule["messages"], len(row["messages"]))


def between(limits, number):
    limits = limits or {}
    return limits.get("min", 0) <= number and ("max" not in limits or number <= limits["max"])


def normalized(value):
    if isinstance(value, str):
        lower = "".join(c.lower() if c.isascii() else c for c in value)
        return " ".join(part for part in re.split("[ \t\n\r\x0b\x0c]+", lower) if part)
    if isinstance(value, list):
        return [normalized(item) for item in value]
    return {name: normalized(item) for name, item in value.items()} if isinstance(value, dict) else value


def compact(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def content(row):
    """What a row of two-field messages says, as it is hashed."""
    return compact([[[message, None] for message in row["messages"]], None, {}, "", ""])


def select(rows, rules, *, sources, tokens):
    """Of each row (split, code, row it lost to, rule that left it out).

    Args:
        rows: as they are in their files, with messages.
        rules: filters, deduplicate and split of a recipe, and `sources` with where, take and split.
        sources: number of each row's source.
        tokens: of each row's longest document; 0 where it was rejected.

    """
    split = [rules["sources"][source].get("split", "train") for source in sources]
    lost = {}  # row → code, row, rule
    left = [i for i in range(len(rows)) if tokens[i]]

    for i in left:
        found = next(
            (
                f"sources[{sources[i]}].where.{field}"
                for field, rule in rules["sources"][sources[i]].get("where", {}).items()
                if not holds(rule, value_at(rows[i], field))
            ),
            None,
        ) or next((rule["name"] for rule in rules["filters"] if not passes(rule, rows[i], tokens[i])), None)
        if found is not None:
            lost[i] = ("filtered", None, found)

    exact = (rules["deduplicate"] or {}).get("exact")
    if exact:
        first = {}
        for held_out in (True, False):
            for i in left:
                if i in lost or (split[i] != "train") != held_out:
                    continue
                key = content(rows[i] if exact == "bytes" else normalized(rows[i]))
                if key in first:
                    lost[i] = ("duplicate", first[key], None)
                first.setdefault(key, i)

    rule = rules["split"]
    if rule:
        own = [i for i in left if i not in lost and split[i] == "train"]
        if "time" in rule:
            divide_by_time(rows, rule, own, split, lost)
        else:
            divide_by_hash(rows, rule, own, split, lost)

    for number, source in enumerate(rules["sources"]):
        if "take" in source:
            own = [i for i in left if i not in lost and sources[i] == number]
            if source["take"].get("order", "hash") == "hash":
                own.sort(key=lambda i: xxh3_128_digest(content(rows[i])))
            for i in own[source["take"]["rows"] :]:
                lost[i] = ("not_taken", None, None)
    return [
        (None, *lost[i]) if i in lost else (split[i] if tokens[i] else None, None, None, None) for i in range(len(rows))
    ]


def divide_by_hash(rows, rule, own, split, lost):
    for i in own:
        if "group" in rule:
            value = value_at(rows[i], rule["group"])
            if value is MISSING or not str(value).strip():
                lost[i] = ("no_group", None, None)
                continue
            key = xxh3_64_intdigest(compact(int(value) if value == 7 else value))  # 7 and 7.0 are one user
        else:
            prompt = next((m["content"] for m in rows[i]["messages"] if m["role"] == "user"), "")
            hashed = normalized(prompt).encode() if prompt.strip() else xxh3_128_digest(content(rows[i]))
            key = xxh3_64_intdigest(hashed)
        u = xxh3_64_intdigest(key.to_bytes(8, "little"), seed=rule.get("seed", 0))
        if u < rule["shares"].get("test", 0) * 2**64:
            split[i] = "test"
        elif u >= 2**64 - rule["shares"].get("validation", 0) * 2**64:
            split[i] = "validation"


def divide_by_time(rows, rule, own, split, lost):
    """Of ISO times; those without a zone are in UTC."""
    cutoffs = [(name, dt.datetime.fromisoformat(rule["cutoffs"][name])) for name in rule["cutoffs"]]
    number = {"train": 0, "validation": 1, "test": 2}
    found = {}
    for i in own:
        group = value_at(rows[i], rule["group"]) if "group" in rule else 0
        if group is MISSING or not str(group).strip():
            lost[i] = ("no_group", None, None)
            continue
        try:
            time = dt.datetime.fromisoformat(value_at(rows[i], rule["time"]))
        except (TypeError, ValueError):
            lost[i] = ("no_time", None, None)
            continue
        time = time.replace(tzinfo=time.tzinfo or dt.UTC)
        found[i] = next((name for name, cutoff in reversed(cutoffs) if time >= cutoff), "train")
    for i, name in found.items():
        split[i] = name
        if "group" in rule:
            group = [j for j in found if value_at(rows[j], rule["group"]) == value_at(rows[i], rule["group"])]
            earliest = min(group, key=lambda j: (number[found[j]], j))
            if number[found[earliest]] < number[name]:
                lost[i] = ("straddles", earliest, None)


QUESTIONS = st.sampled_from(["What is 2+2?", "what  is 2+2? ", "Why?", "Say ÄÖ", "say äö", "long " * 9])
ANSWERS = st.sampled_from(["4", "four", "FOUR", "I cannot", "so it is\nand so", "ja"])
TIMES = st.sampled_from(
    ["2026-01-01T00:00:00Z", "2026-01-01T01:59:59+02:00", "2025-12-31", "2026-03-01T00:00:00+00:00", "then", 7]
)
GROUPS = st.sampled_from(["a", "b", "7", 7, 7.0, 1.5, True])


@st.composite
def raw_rows(draw):
    messages = []
    for _ in range(draw(st.integers(1, 2))):
        messages += [
            {"role": "user", "content": draw(QUESTIONS)},
            {"role": "assistant", "content": draw(ANSWERS)},
        ]
    row = {"messages": messages}
    if draw(st.integers(0, 5)):
        row["meta"] = {"user": draw(st.none() | GROUPS)}
    if draw(st.integers(0, 5)):
        row["score"] = draw(st.sampled_from([0, 0.5, 1, "0.75", "high", True, None, 10**30]))
    if draw(st.integers(0, 9)):
        row["at"] = draw(TIMES)
    return row


CONDITIONS = st.sampled_from(
    [{"min": 0.5}, {"max": 0.5, "min": 0.1}, {"in": [1, "high"]}, {"not_in": [0.5, "0.75"]}, {"matches": "^h"}]
)
FILTERS = st.lists(
    st.sampled_from(
        [
            {"of": "answers", "chars": {"min": 2}},
            {"of": "answers", "not_matches": "(?i)cannot"},
            {"of": "prompts", "matches": "[?]", "chars": {"max": 20}},
            {"of": "conversation", "chars": {"max": 30}},
            {"messages": {"max": 2}},
            {"tokens": {"min": 2, "max": 4}},
            {"field": "score", "min": 0.2},
            {"field": "meta.user", "not_in": ["b"]},
        ]
    ),
    max_size=3,
)
SHARES = st.sampled_from([{"validation": 0.3}, {"test": 0.2, "validation": 0.5}, {"test": 0.4}])
SPLITS = st.none() | st.one_of(
    st.fixed_dictionaries({"shares": SHARES}, optional={"group": st.just("meta.user"), "seed": st.integers(0, 3)}),
    st.fixed_dictionaries(
        {
            "time": st.just("at"),
            "cutoffs": st.sampled_from(
                [
                    {"validation": "2026-01-01T00:00:00+00:00"},
                    {"validation": "2025-12-31T23:00:00+00:00", "test": "2026-02-01T00:00:00+00:00"},
                ]
            ),
        },
        optional={"group": st.just("meta.user")},
    ),
)
SOURCES = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "where": st.fixed_dictionaries({"score": CONDITIONS}),
            "take": st.fixed_dictionaries(
                {"rows": st.integers(1, 4)}, optional={"order": st.sampled_from(["hash", "first"])}
            ),
            "split": st.sampled_from(["validation", "eval"]),
        },
    ),
    min_size=1,
    max_size=3,
)
RULES = st.fixed_dictionaries(
    {
        "filters": FILTERS,
        "deduplicate": st.none() | st.fixed_dictionaries({"exact": st.sampled_from(["bytes", "normalized"])}),
        "split": SPLITS,
        "sources": SOURCES,
    }
)


def recipe_of(rules):
    sources = [{"path": f"{i}.jsonl", **source} for i, source in enumerate(rules["sources"])]
    return make_recipe({**{key: rules[key] for key in ("filters", "deduplicate", "split")}, "sources": sources})


def selected(rows, rules, *, sources, tokens):
    """What packer decides of rows, in the words of the oracle."""
    asked = recipe_of(rules).row_rules
    tables = []
    for source in range(len(rules["sources"])):
        own = [row for row, of in zip(rows, sources, strict=True) if of == source]
        questions = TraitRules.of(asked, source)
        maker, first = TraitMaker(questions), 0
        for batch in (own[:2], own[2:]):
            if batch:
                files = [FileRow(b"{" if row is None else json.dumps(row).encode(), None, 0) for row in batch]
                read = read_batch(
                    files, first, first_line=0, schema="messages", columns={}, roles={}, fields=questions.fields
                )
                assert len(read.rejections) == batch.count(None)
                tables.append(maker.make(read))
                first += len(batch)
    splits = ("train", "validation", "eval")
    found = select_rows(
        InputRows(
            source=np.array(sources, np.int32),
            split=np.array([splits.index(rules["sources"][of].get("split", "train")) for of in sources], np.int32),
            splits=splits,
            num_tokens=np.array(tokens, np.int64),
        ),
        pa.Table.from_batches(tables),
        asked,
    )
    names = asked.names
    return [
        (
            found.splits[split] if split >= 0 else None,
            ROW_REASONS[reason - 1] if reason else None,
            kept if kept >= 0 else None,
            names[detail] if detail >= 0 else None,
        )
        for split, reason, kept, detail in zip(
            found.split.tolist(), found.reason.tolist(), found.kept.tolist(), found.detail.tolist(), strict=True
        )
    ]


def named(rules):
    return rules | {"filters": [{"name": f"f{i}", **rule} for i, rule in enumerate(rules["filters"])]}


@given(data=st.data())
def test_every_row_is_decided_as_plain_python_decides_it(data):
    rules = named(data.draw(RULES))
    numbers = [data.draw(st.integers(1, 9)) for _ in rules["sources"]]
    sources = [source for source, number in enumerate(numbers) for _ in range(number)]
    rows = [data.draw(st.none() | raw_rows()) for _ in sources]  # some cannot be read
    tokens = [0 if row is None else data.draw(st.integers(0, 6)) for row in rows]
    assert selected(rows, rules, sources=sources, tokens=tokens) == select(rows, rules, sources=sources, tokens=tokens)


@given(data=st.data())
def test_rows_that_are_added_at_the_end_change_nothing_of_those_that_are_there(data):
    """Without `take`, whose rows are those with the lowest hashes; and with one source, as held-out rows win."""
    rules = named(data.draw(RULES)) | {"sources": [{}]}
    rows = data.draw(st.lists(raw_rows(), min_size=2, max_size=12))
    tokens = [data.draw(st.integers(0, 6)) for _ in rows]
    number = data.draw(st.integers(1, len(rows) - 1))
    sources = [0] * len(rows)
    every = selected(rows, rules, sources=sources, tokens=tokens)
    before = selected(rows[:number], rules, sources=sources[:number], tokens=tokens[:number])
    groups_by_time = "time" in (rules["split"] or {}) and "group" in rules["split"]
    if not groups_by_time:  # an added row from before the cutoff makes later rows of its group straddle
        assert every[:number] == before


@given(
    keys=st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=200),
    shares=st.tuples(*[st.floats(0, 0.3)] * 4),
    seed=st.integers(0, 2**63 - 1),
)
def test_a_share_that_grows_keeps_every_row_that_was_held_out(keys, shares, seed):
    validation, test = sorted(shares[:2]), sorted(shares[2:])
    less, more = (
        split_by_hash(np.array(keys, np.uint64), Split(shares=Shares(validation=v, test=t), seed=seed))
        for v, t in zip(validation, test, strict=True)
    )
    held_out = np.isin(less, (VALIDATION, TEST))
    assert np.array_equal(more[held_out], less[held_out])


def test_shares_are_what_is_asked_for():
    found = split_by_hash(np.arange(100_000, dtype=np.uint64), Split(shares=Shares(validation=0.02, test=0.01)))
    counts = np.bincount(found, minlength=3)
    assert abs(counts[1] - 2000) < 4 * 45 and abs(counts[2] - 1000) < 4 * 32


def test_a_pattern_that_doubles_with_every_letter_elsewhere_ends():
    rule = [{"name": "a", "of": "answers", "not_matches": "(a+)+$"}]
    maker = TraitMaker(TraitRules.of(make_recipe({"sources": [{"path": "x"}], "filters": rule}).row_rules, 0))
    texts = ["a" * 2**20 + "b", "b" + "a" * 2**20]
    rows = [{"messages": [{"role": "user", "content": "?"}, {"role": "assistant", "content": text}]} for text in texts]
    files = [FileRow(json.dumps(row).encode(), None, 0) for row in rows]
    batch = read_batch(files, 0, first_line=0, schema="messages", columns={}, roles={})
    assert maker.make(batch).column("failed").to_pylist() == [0, 1]
