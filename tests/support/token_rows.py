"""The documents of a cache as rows that bring their tokens, and the literal meaning of such a row."""

import json

import pyarrow as pa


def write_token_rows(cache, folder, *, mark="labels"):
    """A JSONL file for each input of a cache, its documents at the rows they come from; returns the files with splits.

    A row that was rejected stays one that is: `{}`. Every row of the cache must have one document at most.
    """
    manifest = json.loads((cache / "manifest.json").read_text("utf-8"))
    folder.mkdir()
    files = []
    for source, entry in enumerate(manifest["inputs"]):
        rows = [{} for _ in range(entry["num_rows"])]
        for shard in manifest["shards"]:
            if shard["kind"] == "documents" and shard["source"] == source:
                for document in table_of(cache / shard["path"]):
                    row = rows[shard["first_row"] + document["row"]]
                    assert not row, "one document a row"
                    row.update(token_row(document, mark))
        path = folder / f"{source}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
        files.append((path, entry["split"]))
    return files


def table_of(path):

    return pa.ipc.open_file(path).read_all().to_pylist()


def token_row(document, mark):
    """A document as a row; what is trained said by labels or by a mask."""
    labels = document["labels"]
    row = {"input_ids": document["input_ids"]}
    row[mark] = labels if mark == "labels" else [int(label != -100) for label in labels]
    if document["sample_id"] is not None:
        row["sample_id"] = document["sample_id"]
    return row


def runs_of(flags):
    """The trained runs of one document, token by token: [(start, end)]; the first token is never trained."""
    runs = []
    for t, flag in enumerate(flags):
        if t == 0 or not flag:
            continue
        if runs and runs[-1][1] == t:
            runs[-1] = (runs[-1][0], t + 1)
        else:
            runs.append((t, t + 1))
    return runs
