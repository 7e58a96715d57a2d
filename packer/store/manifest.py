"""The manifest: what a cache is made of, from what, by which rules. Its presence is the commit.

Canonical JSON: UTF-8, keys sorted, no spaces, one line for each key and for each input and shard, POSIX relative paths,
a newline at the end; the same manifest is always the same bytes. Its first key is a checksum of all bytes after it, so
that a flipped bit is found wherever it lies; against somebody who can work out a checksum there is the fingerprint.
"""

import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from xxhash import xxh3_128_hexdigest

from packer.errors import CheckError, InputError, UsageError
from packer.names import FilePath, SplitName, in_words
from packer.store.files import CacheFiles
from packer.store.folder import PRIVATE, Inside
from packer.store.totals import Count, Totals

FORMAT_VERSION = 1
"""Of shards, and of caches that hold every row of their inputs."""

SELECTED_VERSION = 2
"""Of caches with a selection, which versions of packer before it must not read as if they had none."""

MANIFEST_NAME = "manifest.json"
REJECTED_NAME = "rejected.jsonl"
MAX_MANIFEST_BYTES = 2**30
"""Some 800,000 shards: as many as 6 TB of rows make in partitions of 8 MiB, or 11 TB in partitions of 64 MiB."""

Hex = Annotated[str, Meta(pattern=r"\A[0-9a-f]{1,64}\Z")]
TokenId = Annotated[int, Meta(ge=0, le=2**31 - 1)]

_SEAL = re.compile(rb'\A\{[ \n]*"checksum"[ \n]*:[ \n]*"([0-9a-f]{32})"(?=[ \n]*,)')
_SEAL_BYTES = len(b'{\n"checksum":""') + 32


class Place(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Where one record batch keeps its fixed-width columns in the file."""

    first_row: Count
    num_rows: Count
    columns: dict[str, Count]
    """Column → offset in bytes of its values from the start of the file: [num_rows × L] for a list column of a block
    shard, [num_rows] for a scalar column."""


class Shard(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    path: FilePath
    kind: Literal["documents", "blocks"]
    split: SplitName
    source: Count | None
    """Documents: index into `inputs`. Blocks: None."""

    key: Hex | None
    """Documents: identity of the partition's bytes and the documents half of the recipe. Blocks: None."""

    first_row: Count
    """Documents: the input row the partition begins with. Blocks: the first block's number in its split."""

    first_line: Count = 0
    """Documents: lines of the input before the partition, where its rows are lines. Blocks: 0."""

    num_rows: Count
    """Rows of this file: documents or blocks."""

    num_kept: Count
    """Documents: rows of the partition that have a document here. Blocks: 0."""

    num_input_rows: Count
    """Documents: rows of the partition = kept + rejected. Blocks: 0."""

    num_rejected: Count
    num_tokens: Count
    num_trained: Count
    num_merged: Count
    """Documents: turns whose boundary merges. Blocks: 0."""

    num_skipped: Count = 0
    """Documents: answers that were to be trained and are not, as they say nothing or have no prompt. Blocks: 0."""

    num_last_tokens: Count
    """Documents: tokens of each kept row's last document; num_tokens over this is the price of rewriting. Blocks: 0."""

    num_bytes: Count
    xxh3: Hex
    """xxh3-128 of the file."""

    sha256: Hex
    rows_xxh3: Hex
    """xxh3-128 of the column `digest`: these rows in this order, whatever file is found under the name."""

    places: tuple[Place, ...]
    unused_keys: dict[str, Count] = {}
    """Documents: keys of messages that no schema knows, and how many messages have them. Blocks: none."""


class StoredTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """A table with a row for each row of the inputs, or of a partition."""

    path: FilePath
    key: Hex | None
    """Traits: identity of the partition's bytes and of what was asked of its rows. Selection: None."""

    num_rows: Count
    num_bytes: Count
    xxh3: Hex
    """xxh3-128 of the file."""

    sha256: Hex


class RowSelection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Which rows are in which split, and what that was decided from."""

    splits: tuple[SplitName, ...]
    """Those that have rows; the table has their numbers."""

    table: StoredTable
    traits: tuple[StoredTable, ...]
    """The traits of each document shard, in order."""

    num_capped: Count = 0
    """As of :class:`packer.batches.SelectedRows`."""


class Input(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One input file as it was read."""

    path: str
    """As the recipe names it, globs expanded, POSIX."""

    split: SplitName
    format: str
    schema: str
    columns: dict[str, str | None]
    """New name of a field → its name in the rows, as the recipe has it for this file."""

    roles: dict[str, str] = {}
    """A role as the rows name it → the role it is."""

    num_bytes: Count
    sha256: Hex
    num_rows: Count
    part: Count | None = None
    """The recipe's source that names it, where the recipe has rules about rows."""


class ModelFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file of the tokenizer folder, kept in the cache under `model/`."""

    path: FilePath
    num_bytes: Count
    sha256: Hex


class ModelRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    files: tuple[ModelFile, ...]
    vocab_size: Count
    pad_id: TokenId
    eos_id: TokenId | None
    stop_ids: tuple[TokenId, ...]
    control_ids: tuple[TokenId, ...]


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    format: Literal["packer-cache"]
    format_version: Literal[1, 2]
    """2 where there is a selection."""

    label_shift: Literal["none"]
    recipe: dict[str, Any]
    engine: str
    engine_version: str
    rules_version: Count
    """Version of the rules that make documents of rows; another version may give other documents."""

    model: ModelRecord
    inputs: tuple[Input, ...]
    shards: tuple[Shard, ...]
    rejected_sha256: Hex
    """Digest of rejected.jsonl."""

    totals: Totals
    recipe_fingerprint: Hex
    content_fingerprint: Hex
    versions: dict[str, str]
    """What wrote the bytes; not part of the fingerprints above."""

    selection: RowSelection | None = None
    """None where every row that has documents is in the split of its source."""

    @property
    def named_files(self) -> frozenset[str]:
        """Relative paths of all that belongs to the cache beside its manifest and rejected.jsonl."""
        return frozenset({*self.digests, self.pending_rejected} - {REJECTED_NAME})

    @property
    def digests(self) -> dict[str, str]:
        """Relative path of every file of the cache but the manifest → its sha256."""
        model = {f"model/{file.path}": file.sha256 for file in self.model.files}
        return {file.path: file.sha256 for file in self.stored} | model | {REJECTED_NAME: self.rejected_sha256}

    @property
    def stored(self) -> "tuple[Shard | StoredTable, ...]":
        """Shards and tables."""
        return (*self.shards, *self.tables)

    @property
    def tables(self) -> tuple[StoredTable, ...]:
        """The selection and the traits."""
        return () if self.selection is None else (self.selection.table, *self.selection.traits)

    @property
    def pending_rejected(self) -> str:
        """Where its rejected.jsonl lies until the commit is finished; see :mod:`packer.store.rejected`."""
        return f"{PRIVATE}/rejected-{self.rejected_sha256[:12]}.jsonl"


class _BelievedPack(msgspec.Struct, frozen=True):
    mode: str
    block_len: Annotated[int, Meta(ge=1, le=2**31 - 1)]
    align: Annotated[int, Meta(ge=1, le=2**31 - 1)] = 1


class _BelievedRecipe(msgspec.Struct, frozen=True):
    pack: _BelievedPack


class _Believed(msgspec.Struct, frozen=True):
    """What readers take from the recipe as it stands; the rest of it is for :mod:`packer.recipe` to understand."""

    recipe: _BelievedRecipe


def encode_manifest(manifest: Manifest) -> bytes:
    """The manifest's bytes in the file; equal manifests give equal bytes.

    Raises:
        UsageError: they are more than readers take.

    """
    fields = sorted(
        (name, value)
        for name in manifest.__struct_fields__
        if (value := getattr(manifest, name)) is not None or name != "selection"
    )
    lines = [f"{json.dumps(name)}:".encode() + _encode_lines(value) for name, value in fields]
    content = sealed(b"{\n" + b",\n".join(lines) + b"\n}\n")
    if len(content) > MAX_MANIFEST_BYTES:
        raise UsageError(
            f"the manifest would have {len(content):,} bytes; readers take up to {MAX_MANIFEST_BYTES:,}",
            hint=f"it names {len(manifest.shards):,} shards and {len(manifest.inputs):,} inputs: larger "
            "partition_bytes and shard_bytes make fewer shards, several caches have smaller manifests",
        )
    return content


def sealed(content: bytes) -> bytes:
    """A manifest's JSON with its checksum in front, xxh3-128 of everything after it; one that is there is replaced."""
    rest = b",\n" + _without_seal(content).removeprefix(b"{").lstrip()
    return b'{\n"checksum":"' + xxh3_128_hexdigest(rest).encode() + b'"' + rest


def write_manifest(folder: Path, manifest: Manifest) -> str:
    """Replace the manifest, all of it or not at all, and return its fingerprint. This commits a build: write it last.

    Raises:
        UsageError: it is larger than readers take.
        StorageError: the disk refuses; the manifest of before is still there.
        BusyError: another build committed in the same bucket meanwhile; that one's manifest is there.

    """
    content = encode_manifest(manifest)
    return CacheFiles(folder).commit(MANIFEST_NAME, content, named=manifest.named_files).sha256


def read_manifest(folder: Path) -> Manifest:
    """Read and check the manifest of a finished cache.

    Raises:
        InputError: there is no manifest: not a cache, or its build did not finish.
        CheckError: it is not what a build writes; the message names the key.
        StorageError: it cannot be read.

    """
    return decode_manifest(folder, manifest_bytes(folder))


def manifest_fingerprint(folder: Path) -> str:
    """Identity of all bytes of a cache: sha256 of its manifest, which holds the sha256 of every shard.

    Raises:
        InputError, CheckError, StorageError: as :func:`read_manifest`.

    """
    return fingerprint_of(manifest_bytes(folder))


def fingerprint_of(content: bytes) -> str:
    """Fingerprint of a manifest's bytes."""
    return hashlib.sha256(content).hexdigest()


def manifest_bytes(folder: Path) -> bytes:
    """The bytes of the manifest, not yet believed.

    Raises:
        InputError: there is none.
        CheckError: it is too large to be one.
        StorageError: it cannot be read.

    """
    size = CacheFiles(folder).size(MANIFEST_NAME)
    if size is None:
        raise InputError(
            f"{folder} is not a cache, or its build did not finish: it has no {MANIFEST_NAME}",
            hint=f"packer build SOURCE... -o {folder} makes one; packer verify --foreign {folder} looks at what "
            "another tool prepared",
        )
    if size > MAX_MANIFEST_BYTES:
        raise CheckError(f"{folder / MANIFEST_NAME}: expected at most {MAX_MANIFEST_BYTES} bytes, found {size}")
    return CacheFiles(folder).read(MANIFEST_NAME)


def decode_manifest(folder: Path, content: bytes) -> Manifest:
    """The manifest its bytes stand for; ``folder`` is where its shards must lie.

    Raises:
        CheckError: not JSON, an unknown key, a wrong type or value, a path that leads out of the cache,
            another checksum.

    """
    path = folder / MANIFEST_NAME
    hint = f"it was changed or damaged after the build; packer build -c RECIPE -o {folder} mends it"
    try:
        manifest = msgspec.json.decode(_without_seal(content), type=Manifest)
        root = Inside(folder)
        _check_paths(root, "shards[{}].path", [(shard.path, shard.kind) for shard in manifest.shards])
        _check_paths(root, "selection {}: path", [(table.path, "rows") for table in manifest.tables])
        _check_paths(root, "model.files[{}].path", [(f"model/{file.path}", "model") for file in manifest.model.files])
        _check_version(manifest)
        msgspec.convert({"recipe": manifest.recipe}, _Believed)
        _check_seal(content)
    except msgspec.ValidationError as error:
        raise CheckError(f"{path}: {in_words(str(error))}", hint=hint) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CheckError(f"{path}: not valid JSON: {error}", hint=hint) from None
    except ValueError as error:
        raise CheckError(f"{path}: {error}", hint=hint) from None
    return manifest


def _encode_lines(value: Any) -> bytes:
    """JSON with sorted keys; a list of objects takes one line an object."""
    if isinstance(value, tuple) and value:
        return b"[\n" + b",\n".join(msgspec.json.encode(item, order="sorted") for item in value) + b"\n]"
    return msgspec.json.encode(value, order="sorted")


def _without_seal(content: bytes) -> bytes | bytearray:
    """The JSON with blanks in place of the checksum it begins with."""
    found = _SEAL.match(content)
    if found is None:
        return content
    end = content.index(b",", found.end()) + 1
    blank = bytearray(content)
    blank[1:end] = b" " * (end - 1)
    return blank


def _check_seal(content: bytes) -> None:
    found = _SEAL.match(content)
    if found is None:
        raise ValueError("it does not begin with its checksum")
    if found.end() != _SEAL_BYTES or found[1] != xxh3_128_hexdigest(content[_SEAL_BYTES:]).encode():
        raise ValueError(f"its checksum, {found[1].decode()}, is not the one of its bytes")


def _check_version(manifest: Manifest) -> None:
    if (manifest.selection is not None) != (manifest.format_version == SELECTED_VERSION):
        raise ValueError(f"format_version is {manifest.format_version}; 2 has a selection, 1 has none")


def _check_paths(root: Inside, key: str, paths: Sequence[tuple[str, str]]) -> None:
    """Refuse paths that do not lie in their folder of the cache."""
    for i, (path, folder) in enumerate(paths):
        if not path.startswith(f"{folder}/"):
            raise ValueError(f"{key.format(i)}: expected a path in {folder}/, found '{path}'")
        if path not in root:
            raise ValueError(
                f"{key.format(i)}: '{path}' is a link that leads out of the cache; copy the files themselves"
            )
