"""Rows of tokens with columns that tell where each value belongs, and what a loader must make of them."""

COLUMNS = {
    "token_columns": {
        "at": {"kind": "int32", "missing": -1},
        "logp": {"kind": "float32", "missing": -9},
        "top": {"kind": "int32", "width": 3, "missing": -2},
    },
    "document_columns": {"reward": {"kind": "float32", "missing": -5}},
}
NAMES = [name for group in COLUMNS.values() for name in group]


def rows_of(lengths):
    """Rows of so many tokens, of which no two are alike; most tokens are trained."""
    rows = []
    for row, length in enumerate(lengths):
        ids = [5 + (7 * row + 13 * t) % 190 for t in range(length)]
        labels = [-100] + [token if (row + t) % 5 else -100 for t, token in enumerate(ids[1:], start=1)]
        labels[-1] = ids[-1]
        rows.append({"input_ids": ids, "labels": labels, **values_of(row, range(length)), "reward": row / 4})
    return rows


def values_of(row, tokens):
    return {
        "at": [1000 * row + t for t in tokens],
        "logp": [-(row + t / 64) for t in tokens],
        "top": [[row, t, row + t] for t in tokens],
    }


def check_micro_batch(micro_batch, rows, names=NAMES):
    """Assert that each position has the values of its token, and return (row, token, whether trained) of them.

    Knows nothing of documents and blocks: the column `at` says which token of which row it is beside.
    """
    shift = "shift_" if "shift_labels" in micro_batch else ""
    columns = {name: micro_batch[f"{shift}columns"][name] for name in names}
    ids, labels = micro_batch["input_ids"], micro_batch[f"{shift}labels"]
    assert {name: str(values.dtype) for name, values in columns.items()} == {
        name: {"at": "torch.int64", "top": "torch.int64"}.get(name, "torch.float32") for name in names
    }
    for name, values in columns.items():
        assert values.shape == (*ids.shape, 3) if name == "top" else ids.shape
    found = []
    for line in range(len(ids)):
        length = ids.shape[1]
        for place in range(length - bool(shift)):
            at = int(columns["at"][line, place])
            label, token = int(labels[line, place]), int(ids[line, place + bool(shift)])
            own = [columns[name][line, place].tolist() for name in names]
            if at == -1:
                assert label == -100
                assert own == [{"at": -1, "logp": -9, "top": [-2] * 3, "reward": -5}[name] for name in names]
                continue
            row, t = divmod(at, 1000)
            assert rows[row]["input_ids"][t] == token and label in (-100, token)
            expected = {**{name: values[0] for name, values in values_of(row, [t]).items()}, "reward": row / 4}
            assert own == [expected[name] for name in names]
            found.append((row, t, label != -100))
        if shift:
            assert int(labels[line, -1]) == -100
            assert all(not values[line, -1].any() for values in columns.values())
    return found
