"""The fingerprint of a cache, computed from its files alone, value by value: docs/reference/format.md in plain Python."""

import hashlib
import json
from itertools import chain

import numpy as np
import pyarrow as pa


def _flat(values, kind):
    return None if values is None else np.array([*values], kind).tobytes()


def _lists(rows, kind, of=1):
    if rows is None:
        return (None,)
    return _flat((len(row) // of for row in rows), "<i8"), _flat(chain.from_iterable(rows), kind)


def _parts(columns, recipe):
    """The columns of one record batch, in the order in which they are hashed."""
    numbers = (_flat(columns["length"], "<i4"), _flat(columns["num_trained"], "<i4"))
    if "spans" not in columns:
        yield from numbers
        for name in ("input_ids", "labels", "position_ids"):
            yield _flat(chain.from_iterable(columns[name]), "<i4")
        yield from _lists(columns["doc_ids"], "<i8")
        for name in ("doc_starts", "doc_lengths", "doc_places", "seq_lengths"):
            yield from _lists(columns[name], "<i4")
        return
    yield from (_flat(columns["doc_id"], "<i8"), *numbers, _flat(columns["row"], "<i4"))
    yield from chain(_lists(columns["input_ids"], "<i4"), _lists(columns["labels"], "<i4"))
    for name in ("message", "start", "end"):
        yield from _lists([[span[name] for span in spans] for spans in columns["spans"]], "<i4")
    yield from _lists([(text or "").encode() for text in columns["sample_id"]], "u1")
    yield _flat([text is not None for text in columns["sample_id"]], "u1")
    yield _flat(columns.get("side"), "i1")
    if "media" in columns:
        yield from _lists([b"".join(image["sha256"] for image in images) for images in columns["media"]], "u1", of=32)
        names = ("start", "length", "height", "width", "pixels")
        places = [[image[name] for image in images for name in names] for images in columns["media"]]
        yield from _lists(places, "<i4", of=len(names))
    tokens, documents = recipe.get("token_columns", {}), recipe.get("document_columns", {})
    for name, rule in sorted({**tokens, **documents}.items()):
        kind, width = {"int32": "<i4", "float32": "<f4"}[rule["kind"]], rule.get("width")
        if name in documents:
            yield _flat(columns[name], kind)
        elif width is None:
            yield from _lists(columns[name], kind)
        else:
            yield from _lists([[*chain.from_iterable(row)] for row in columns[name]], kind, of=width)


def _batches(path):
    reader = pa.ipc.open_file(path)
    for number in range(reader.num_record_batches):
        batch = reader.get_batch(number)
        yield {name: batch.column(name).to_pylist() for name in batch.schema.names}


def _rows_sha256(path, recipe):
    digest = hashlib.sha256()
    for columns in _batches(path):
        for part in _parts(columns, recipe):
            digest.update(b"-1\n" if part is None else b"%d\n" % len(part))
            digest.update(part or b"")
    return digest.hexdigest()


def _content(folder, manifest):
    """Which documents and blocks each split has, in order."""
    selection = manifest.get("selection")
    splits = () if selection is None else next(_batches(folder / selection["table"]["path"]))["split"]
    rows, first = {}, 0
    for shard in manifest["shards"]:
        for columns in _batches(folder / shard["path"]):
            if shard["kind"] == "blocks":
                rows.setdefault(("blocks", shard["split"]), []).extend(
                    _flat([each], "<u8") for each in columns["digest"]
                )
                continue
            for index, row in enumerate(columns["row"]):
                of = shard["split"] if selection is None else selection["splits"][splits[first + row]]
                if selection is not None and splits[first + row] < 0:
                    continue
                values = [columns["doc_id"][index], shard["first_row"] + row]
                values += [int(np.uint64(columns["digest"][index]).view(np.int64))] * shard.get("joined", False)
                if "side" in columns:
                    values.append(columns["side"][index])
                rows.setdefault(("documents", of), []).append(_flat(values, "<i8"))
        first += shard.get("num_input_rows", 0)
    lines = (
        f"{kind}/{split} {hashlib.sha256(b''.join(rows[kind, split])).hexdigest()}\n" for kind, split in sorted(rows)
    )
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _rejected(folder):
    digest = hashlib.sha256()
    for text in (folder / "rejected.jsonl").read_text("utf-8").splitlines():
        line = json.loads(text)
        values = [line.get(name) for name in ("row", "line", "code", "document", "split", "start", "tokens")]
        digest.update(json.dumps(values, separators=(",", ":")).encode() + b"\n")
    return digest.hexdigest()


def recomputed(folder):
    manifest = json.loads((folder / "manifest.json").read_bytes())
    recipe = manifest["recipe"]
    for name in ("engine", "tokenizer"):
        del recipe[name]
    for name in ("file", "name"):
        recipe["template"].pop(name, None)
    recipe.get("media", {}).pop("root", None)
    for rule in (rule for key in ("token_columns", "document_columns") for rule in recipe.get(key, {}).values()):
        rule.pop("file", None)
    for benchmark in recipe.get("decontaminate", {}).get("against", ()):
        del benchmark["path"]
    sources = [{key: source[key] for key in ("where", "take") if key in source} for source in recipe.pop("sources")]
    if any(sources):
        recipe["sources"] = sources
    for entry in manifest["inputs"]:
        del entry["path"]
        if not any(sources):
            entry.pop("part", None)
    shards = []
    for shard in manifest["shards"]:
        known = {name: shard[name] for name in ("kind", "split", "source", "first_row")}
        shards.append(known | {"rows_sha256": _rows_sha256(folder / shard["path"], recipe)})
    decides = {name: manifest[name] for name in ("format_version", "rules_version", "model", "totals", "inputs")}
    decides |= {"recipe": recipe, "shards": shards}
    decides |= {"content_fingerprint": _content(folder, manifest), "rejected_content": _rejected(folder)}
    text = json.dumps(decides, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()
