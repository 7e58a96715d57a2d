"""Which rows are learned, decided by plain Python, row after row, from the rules as they stand in a recipe."""

import json
import re

from xxhash import xxh3_64_intdigest, xxh3_128_digest

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
        divide_by_hash(rows, rule, own, split, lost)

    for number, source in enumerate(rules["sources"]):
        if "take" in source:
            own = [i for i in left if i not in lost and sources[i] == number]
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
