"""Caches whose values are forged and whose digests are right: every column of every file, every field of the manifest.

The columns come from the files' own schemas and the fields from the manifest's types, so that new ones are forged too.
"""

import hashlib
import json
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from faults.amount import FULL
from faults.jobs import Job, row, write_job
from image_models import answer, model_folder, picture, user

from packer.media.loading import missing_library
from packer.store.arrow_columns import digest_values, shard_rows
from packer.store.folder import digest_file
from packer.store.manifest import Shard, StoredTable, read_manifest, sealed
from packer.store.row_tables import content_fingerprint, documents_of
from packer.store.writing import find_places

KINDS = ("chats", "pairs", "ids", "rated", "selected", *["images"] * (FULL and missing_library() is None))
"""Images not in the small part: to build their cache, transformers is imported for seconds."""

Change = Callable[[Path], None]
"""Forges a cache in place."""

_DIGITS, _NO_TEXT = "@5000 digits@", "@no UTF-8@"
"""Stand in a manifest for what Python's JSON would not write."""

_INTEGERS = (0, -1, 1, 2**31 - 1, 2**31, 2**63 - 1, 2**63, _DIGITS)
_TEXTS = ("", "\0", "a" * 5000, "../x", "none", "eos", "0" * 32, "\ud800", _NO_TEXT)
_FLOATS = (0.0, -1.0, float("nan"), float("inf"), 1e38)


def write_jobs(folder: Path) -> dict[str, Job]:
    """One small job for each form that a cache can have."""
    rng = random.Random(0)
    jobs = {name: write_job(folder / name, num_rows=8) for name in KINDS}
    rows: dict[str, list[Any]] = {
        "pairs": [
            {"prompt": f"ask {i}", "chosen": "yes " * (i + 1), "rejected": "no", "margin": i / 4} for i in range(8)
        ],
        "rated": [{"prompt": f"ask {i}", "completion": "yes " * (i + 1), "label": i % 2 == 0} for i in range(8)],
        "ids": [{"input_ids": [rng.randrange(4, 200) for _ in range(9 + 4 * i)], "id": f"row {i}"} for i in range(8)],
        "selected": [json.loads(row(i)) | {"topic": f"topic {i % 5}"} for i in (*range(12), 3, 5)],
        "chats": [json.loads(row(i)) for i in range(8)] + [json.loads(row(30, num_words=200))],
    }
    if "images" in KINDS:
        tokenizer = jobs["images"].folder / "tokenizer"
        shutil.rmtree(tokenizer)
        model_folder(tokenizer)
        for name in "ab":
            (tokenizer.parent / f"{name}.png").write_bytes(picture(60, 40, seed=ord(name)))
        shown = [["@a.png"], ["@a.png", "@b.png"], [], ["@b.png"], ["@none.png"]] * 2
        rows["images"] = [{"messages": [user(*each, f"ask {i}"), answer("yes")]} for i, each in enumerate(shown)]
    for i, each in enumerate(rows["ids"]):
        advantage = [0.0, *(0.5 if i % 2 else 1.0 for _ in each["input_ids"][1:])]
        each |= {"advantage": advantage, "top": [[1, 2]] * len(each["input_ids"]), "reward": i}
        each["loss_mask"] = [int(value > 0) for value in advantage]
    rules = {
        "ids": "pack: {block_len: 64, overlong: split}\n"
        "token_columns: {advantage: {kind: float32, missing: -1}, top: {kind: int32, width: 2}}\n"
        "document_columns: {reward: {kind: float32}}\n",
        "chats": "pack: {block_len: 64, align: 8}\n",
        "pairs": "document_columns: {margin: {kind: float32}}\n",
        "images": "media: {images: read}\npack: {block_len: 128, max_pixels: 100000}\n",
        "selected": "pack: {block_len: 64, mode: stream}\nsplit: {shares: {validation: 0.3}, group: topic}\n"
        "deduplicate: {exact: bytes, near: {}}\nfilters: [{name: short, tokens: {min: 4}}]\n",
    }
    for name, job in jobs.items():
        (job.folder / "chat.jsonl").write_bytes(b"".join(json.dumps(each).encode() + b"\n" for each in rows[name]))
        job.recipe.write_text(
            "version: 1\nsources: [{path: chat.jsonl}]\ntokenizer: tokenizer\nengine: reference\n"
            f"partition_bytes: 16KiB\nshard_bytes: 3KiB\n{rules.get(name, '')}"
        )
    return jobs


@dataclass(frozen=True, slots=True, kw_only=True)
class _Buffer:
    """The values of a column in one record batch of a file."""

    name: str
    dtype: Any
    start: int
    count: int


def forgeries(cache: Path) -> Iterator[tuple[str, Change]]:
    """Every forgery of a cache, with a name that says what it changes."""
    manifest = read_manifest(cache)
    kinds: dict[Any, Shard | StoredTable] = {}
    for stored in manifest.stored:
        kinds.setdefault(stored.path.partition("-")[0] if isinstance(stored, StoredTable) else stored.kind, stored)
    for kind, stored in kinds.items():
        for buffer in _buffers((cache / stored.path).read_bytes()):
            for how, change in _of_values(buffer):
                yield f"{kind}: {buffer.name} at {buffer.start}: {how}", _forge_file(stored.path, buffer, change)
    for path, values in fields_of(manifest, ()):
        for value in values:
            shown = repr(value)
            yield f"manifest: {'.'.join(map(str, path))} = {shown[:40]}", _forge_field(path, value)
    lines = [json.loads(line) for line in (cache / "rejected.jsonl").read_text().splitlines()]
    for number, line in enumerate(lines[:1] + lines[-1:]):
        for path, values in fields_of(line, ()):
            for value in values:
                yield f"rejected: {number} {path} = {repr(value)[:40]}", _forge_line(-number, path, value)


def _of_values(buffer: _Buffer) -> Iterator[tuple[str, Callable[[Any], None]]]:
    """Ways to change an array of values in place."""
    dtype = np.dtype(buffer.dtype)
    values: tuple[Any, ...] = _FLOATS
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        values = (0, 1, -1, limits.max, limits.min, 2**31 - 1, 1000, buffer.count, buffer.count + 1)
        values = tuple(dict.fromkeys(value for value in values if limits.min <= value <= limits.max))
    for value in values:
        for where, place in (("first", 0), ("last", -1), ("all", slice(None))):

            def put(array: Any, place: Any = place, value: Any = value) -> None:
                array[place] = value

            yield f"{where} = {value}", put

    def swapped(array: Any) -> None:
        array[[0, -1]] = array[[-1, 0]]

    def backwards(array: Any) -> None:
        array[:] = array[::-1].copy()

    def next_one(array: Any) -> None:
        array[len(array) // 2] += 1

    yield from (("swapped", swapped), ("reversed", backwards), ("middle + 1", next_one))


def _buffers(content: bytes) -> list[_Buffer]:
    """All buffers of a file that hold values, offsets or marks of nulls, but those of the digests."""
    whole = pa.py_buffer(content)
    reader = pa.ipc.open_file(whole)
    found = []
    for number in {0, reader.num_record_batches - 1}:
        batch = reader.get_batch(number)
        for column, field in zip(batch.columns, batch.schema, strict=True):
            buffers = iter(column.buffers())
            for name, dtype, buffer in _walk(field.name, field.type, buffers):
                if buffer is not None and field.name != "digest" and buffer.size >= np.dtype(dtype).itemsize:
                    count = buffer.size // np.dtype(dtype).itemsize
                    found.append(_Buffer(name=name, dtype=dtype, start=buffer.address - whole.address, count=count))
    return found


def _walk(name: str, kind: pa.DataType, buffers: Iterator[Any]) -> Iterator[tuple[str, Any, Any]]:
    yield f"{name} nulls", np.uint8, next(buffers)
    if pa.types.is_struct(kind):
        for field in kind:
            yield from _walk(f"{name}.{field.name}", field.type, buffers)
    elif pa.types.is_fixed_size_list(kind):
        yield from _walk(name, kind.value_type, buffers)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        yield f"{name} offsets", np.int64 if pa.types.is_large_list(kind) else np.int32, next(buffers)
        yield from _walk(name, kind.value_type, buffers)
    elif pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        yield f"{name} offsets", np.int64 if pa.types.is_large_binary(kind) else np.int32, next(buffers)
        yield f"{name} bytes", np.uint8, next(buffers)
    elif pa.types.is_fixed_size_binary(kind) or pa.types.is_boolean(kind):
        yield name, np.uint8, next(buffers)
    else:
        yield name, kind.to_pandas_dtype(), next(buffers)


def _forge_file(path: str, buffer: _Buffer, change: Callable[[Any], None]) -> Change:
    def forge(cache: Path) -> None:
        content = bytearray((cache / path).read_bytes())
        with np.errstate(all="ignore"):
            change(np.frombuffer(content, buffer.dtype, buffer.count, buffer.start))
        if not path.startswith(("rows/", "media/")):
            _set_row_digests(content, path.partition("/")[0])
        (cache / path).unlink()
        (cache / path).write_bytes(content)
        _set_digests(cache, path, content)

    return forge


def _set_row_digests(content: bytearray, kind: str) -> None:
    """Make the digest of each row that of its values, as far as they can be found at all."""
    whole = pa.py_buffer(content)
    reader = pa.ipc.open_file(whole)
    for number in range(reader.num_record_batches):
        batch = reader.get_batch(number)
        stored = batch.column("digest").buffers()[-1]
        try:
            digests = shard_rows(batch, kind).digests()
        except (ValueError, IndexError, OverflowError):
            continue
        np.frombuffer(content, np.uint64, len(digests), stored.address - whole.address)[:] = digests


def _set_digests(cache: Path, path: str, content: bytes) -> None:
    """Make the manifest's entry of a file, and what follows from it, what the file says."""
    manifest = json.loads((cache / "manifest.json").read_bytes())
    selection = manifest.get("selection") or {}
    tables = [*([selection["table"], *selection["traits"]] if selection else []), *manifest.get("media", [])]
    entry = next(each for each in (*manifest["shards"], *tables) if each["path"] == path)
    digest = digest_file(cache / path)
    entry |= {"num_bytes": digest.num_bytes, "xxh3": digest.xxh3, "sha256": digest.sha256}
    if "places" in entry:
        _, entry["rows_xxh3"] = _places_and_rows(cache / path)
        entry["rows_sha256"] = _values(content, entry["kind"])
        sums = _sums(content)
        for name, total in sums.items():
            if entry["kind"] == "documents" and total >= 0:
                manifest["totals"][name.removeprefix("num_")] += total - entry[name]
            entry[name] = total if 0 <= total < 2**63 else entry[name]
        manifest["totals"]["masked"] = max(manifest["totals"]["tokens"] - manifest["totals"]["trained"], 0)
    write_manifest(cache, manifest)
    try:
        decoded = read_manifest(cache)
        manifest["content_fingerprint"] = content_fingerprint(cache, decoded.shards, documents_of(cache, decoded))
    except Exception:  # noqa: BLE001 - what cannot be read has no fingerprint
        return
    write_manifest(cache, manifest)


def _values(content: bytes, kind: Any) -> str:
    """The digest of all values, as far as they can be found at all."""
    reader, digest = pa.ipc.open_file(pa.py_buffer(content)), hashlib.sha256()
    for number in range(reader.num_record_batches):
        with suppress(ValueError, IndexError, OverflowError):
            digest_values(digest, shard_rows(reader.get_batch(number), kind))
    return digest.hexdigest()


def _sums(content: bytes) -> dict[str, int]:
    reader = pa.ipc.open_file(pa.py_buffer(content))
    found = {"num_tokens": 0, "num_trained": 0}
    for number in range(reader.num_record_batches):
        batch = reader.get_batch(number)
        for name, column in (("num_tokens", "length"), ("num_trained", "num_trained")):
            values = np.frombuffer(batch.column(column).buffers()[-1], np.int32, batch.num_rows)
            found[name] += int(values.sum(dtype=np.int64))
    return found


def _places_and_rows(path: Path) -> tuple[Any, str]:
    from xxhash import xxh3_128

    content, digest = path.read_bytes(), xxh3_128()
    places = find_places(path)
    for place in places:
        start = place.columns["digest"]
        digest.update(content[start : start + 8 * place.num_rows])
    return places, digest.hexdigest()


def fields_of(value: Any, path: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
    """Every place of a value, at most the first and the last item of a list, and what to put there."""
    if isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            yield from fields_of(getattr(value, name), (*path, name))
        return
    if isinstance(value, tuple | list):
        items = msgspec.to_builtins(value)
        yield path, ([], items * 2, items[::-1], items[:-1], items[-1:] * 1000)
        for place in sorted({0, len(value) - 1} if value else ()):
            yield from fields_of(value[place], (*path, place))
    elif isinstance(value, dict):
        yield path, ({}, {"x": 1}, [])
        for name, item in value.items():
            yield from fields_of(item, (*path, name))
    elif isinstance(value, bool) or value is None:
        yield path, (not value, 0, -1, "x", 2**63 - 1, [], {})
    elif isinstance(value, int):
        yield path, (*_INTEGERS, value + 1, value - 1)
    elif isinstance(value, float):
        yield path, (-1.0, 1e308, 2)
    else:
        yield path, _TEXTS


def _forge_field(path: tuple[Any, ...], value: Any) -> Change:
    def forge(cache: Path) -> None:
        manifest = json.loads((cache / "manifest.json").read_bytes())
        put_at(manifest, path, value)
        write_manifest(cache, manifest)

    return forge


def _forge_line(number: int, path: tuple[Any, ...], value: Any) -> Change:
    def forge(cache: Path) -> None:
        lines = (cache / "rejected.jsonl").read_bytes().splitlines()
        line = json.loads(lines[number])
        put_at(line, path, value)
        lines[number] = encoded(line)
        (cache / "rejected.jsonl").unlink()
        (cache / "rejected.jsonl").write_bytes(b"".join(each + b"\n" for each in lines))
        manifest = json.loads((cache / "manifest.json").read_bytes())
        manifest["rejected_sha256"] = digest_file(cache / "rejected.jsonl").sha256
        write_manifest(cache, manifest)

    return forge


def put_at(value: Any, path: tuple[Any, ...], new: Any) -> None:
    """Put something at a place of a JSON value."""
    if not path:
        value.clear()
        return
    for key in path[:-1]:
        value = value[key]
    value[path[-1]] = new


def texts_of(value: Any, path: tuple[Any, ...] = (), *, new_key: str | None = None) -> Iterator[tuple[Any, ...]]:
    """Every place of a JSON value that has a text, of a list in its first item; and one for a new key of each object."""
    if isinstance(value, str):
        yield path
    elif isinstance(value, list):
        for item in value[:1]:
            yield from texts_of(item, (*path, 0), new_key=new_key)
    elif isinstance(value, dict):
        if new_key is not None:
            yield (*path, new_key)
        for name, item in value.items():
            yield from texts_of(item, (*path, name), new_key=new_key)


def write_manifest(cache: Path, manifest: dict[str, Any]) -> None:
    """Write a manifest in the form of a build's, with its checksum."""
    manifest.pop("checksum", None)
    lines = []
    for name, value in sorted(manifest.items()):
        if isinstance(value, list) and value:
            written = b"[\n" + b",\n".join(map(encoded, value)) + b"\n]"
        else:
            written = encoded(value)
        lines.append(json.dumps(name).encode() + b":" + written)
    (cache / "manifest.json").unlink()
    (cache / "manifest.json").write_bytes(sealed(b"{\n" + b",\n".join(lines) + b"\n}\n"))


def encoded(value: Any) -> bytes:
    """JSON as the manifest has it, and beyond: numbers of 5,000 digits, half a surrogate pair, no UTF-8."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    content = text.encode("utf-8", "surrogatepass")
    return content.replace(json.dumps(_DIGITS).encode(), b"9" * 5000).replace(_NO_TEXT.encode(), b"\xff")
