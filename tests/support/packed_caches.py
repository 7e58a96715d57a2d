"""What packing promises, checked literally on the files of a cache: Arrow and JSON, token by token, no line of packer."""

import json
from collections import Counter

import pyarrow as pa


def table(folder, kind, split):
    """All rows of one kind and split, as Python values."""
    shards = json.loads((folder / "manifest.json").read_text("utf-8"))["shards"]
    files = [folder / shard["path"] for shard in shards if (shard["kind"], shard["split"]) == (kind, split)]
    return [row for file in files for row in pa.ipc.open_file(file).read_all().to_pylist()]


def ledger(folder, split):
    """(document, start, tokens, code) of each part of a document that is in no block."""
    lines = [json.loads(line) for line in (folder / "rejected.jsonl").read_text("utf-8").splitlines()]
    return [
        (line["document"], line["start"], line["tokens"], line["code"]) for line in lines if line.get("split") == split
    ]


def check_packing(folder):
    """Assert everything, and return the number of blocks, of pieces and of parts in the ledger."""
    manifest = json.loads((folder / "manifest.json").read_text("utf-8"))
    pack, model = manifest["recipe"]["pack"], manifest["model"]
    splits = list(dict.fromkeys(shard["split"] for shard in manifest["shards"] if shard["kind"] == "documents"))
    num_blocks = num_pieces = num_parts = 0
    trained_in_blocks = trained_in_documents = trained_in_ledger = first_of_pieces = padding = 0
    for split in splits:
        documents = {}
        tokens = Counter()
        for row in table(folder, "documents", split):
            documents[row["doc_id"]] = row
            tokens.update((row["doc_id"], t) for t in range(len(row["input_ids"])))
            trained_in_documents += sum(label != -100 for label in row["labels"])
        found = Counter()
        for document, start, length, code in ledger(folder, split):
            num_parts += 1
            found.update((document, t) for t in range(start, start + length))
            labels = documents[document]["labels"]
            trained_in_ledger += sum(label != -100 for label in labels[start : start + length])
            _check_reason(code, labels, start, length, pack)
        for block in table(folder, "blocks", split):
            num_blocks += 1
            pieces = list(zip(*(block[name] for name in PIECES), strict=True))
            num_pieces += len(pieces)
            for document, start, length, _ in pieces:
                found.update((document, t) for t in range(start, start + length))
                first_of_pieces += documents[document]["labels"][start] != -100
            trained_in_blocks += sum(label != -100 for label in block["labels"])
            padding += _check_block(block, pieces, documents, pack, model)
        assert found == tokens, "each token once, in a block or in the ledger"
    totals = manifest["totals"]
    assert trained_in_documents == trained_in_blocks + trained_in_ledger + first_of_pieces == totals["trained"]
    assert (totals["piece_starts"], totals["padding"]) == (first_of_pieces, padding)
    assert sum(cut["parts"] for cut in totals["cut"].values()) == num_parts
    assert sum(cut["trained"] for cut in totals["cut"].values()) == trained_in_ledger
    return num_blocks, num_pieces, num_parts


PIECES = ("doc_ids", "doc_starts", "doc_lengths", "doc_places")


def _check_reason(code, labels, start, length, pack):
    if code == "overlong":
        assert pack["overlong"] == "reject" and length == len(labels) > pack["block_len"]
    elif code == "truncated":
        assert pack["overlong"] == "truncate_right" and length == len(labels) - pack["block_len"]
        assert start == pack["block_len"]
    else:
        assert code == "untrained"
        assert all(label == -100 for label in labels[start + 1 : start + length])


def _check_block(block, pieces, documents, pack, model):
    """One block, slot by slot; returns its padding."""
    L, mode = pack["block_len"], pack["mode"]
    ids, labels = ([None] * L for _ in range(2))
    owner = [None] * L
    at, runs = 0, []
    for number, (document, start, length, place) in enumerate(pieces):
        assert place == at, "one piece behind the other"
        source = documents[document]
        for t in range(length):
            assert owner[place + t] is None
            owner[place + t] = number
            ids[place + t] = source["input_ids"][start + t]
            labels[place + t] = source["labels"][start + t] if t else -100
        at += length
        begun = place
        if mode == "isolated":
            while (at - begun) % pack["align"]:
                ids[at], labels[at] = model["pad_id"], -100
                at += 1
            runs.append(at - begun)
    if mode != "isolated":
        runs = [at]
    assert at <= L
    if at < L:
        runs.append(L - at)
    for slot in range(at, L):
        ids[slot], labels[slot] = model["pad_id"], -100
    assert block["input_ids"] == ids
    assert block["labels"] == labels
    assert block["seq_lengths"] == runs
    assert block["position_ids"] == [position for run in runs for position in range(run)]
    assert block["length"] == sum(length for _, _, length, _ in pieces)
    assert block["num_trained"] == sum(label != -100 for label in labels) > 0
    for slot, label in enumerate(labels):
        if label != -100:  # read shifted or not, the token before a target is its document's
            assert slot and owner[slot] == owner[slot - 1] is not None
    return L - block["length"]
