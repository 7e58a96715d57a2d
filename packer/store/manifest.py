"""The manifest: the contents of a cache, its inputs and its rules. Its presence is the commit.

Canonical JSON: UTF-8, keys sorted, no spaces, one line for each key and for each input and shard, POSIX relative paths,
a newline at the end; equal manifests have equal bytes. Its first key is a checksum of all bytes after it, so that any
flipped bit is detected. Protection against deliberate changes is the purpose of the fingerprint
(:mod:`packer.store.cache`).
"""

import json
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from xxhash import xxh3_128_hexdigest

from packer.display import in_shell
from packer.errors import CheckError, InputError, UsageError, did_you_mean, near_paths
from packer.host.files import MAX_SMALL_BYTES, leads_outside, refuse_many_values
from packer.names import FilePath, SplitName, in_words
from packer.recipe import ROW_SCHEMAS
from packer.recipe.recipe import Recipe
from packer.store.entries import FORMAT_VERSION, Count, Hex, Place, Shard, StoredTable, Totals
from packer.store.files import CacheFiles
from packer.store.folder import PRIVATE

__all__ = ["FORMAT_VERSION", "Place", "Shard", "StoredTable"]

MANIFEST_NAME = "manifest.json"
REJECTED_NAME = "rejected.jsonl"
MAX_MANIFEST_BYTES = 2**30
"""Room for some 800,000 shards: 6 TB of rows in partitions of 8 MiB, or 11 TB in partitions of 64 MiB."""

TokenId = Annotated[int, Meta(ge=0, le=2**31 - 1)]

_SEAL = b'{\n"checksum":"'
_SEAL_BYTES = len(_SEAL) + 32 + 1  # with the hexadecimal digits of xxh3-128 and a quotation mark


class RowSelection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Which rows are in which split, and the traits on which that decision is based."""

    splits: tuple[SplitName, ...]
    """Splits that have rows; the table refers to them by index."""

    table: StoredTable
    traits: tuple[StoredTable, ...]
    num_capped: Count = 0
    """See :class:`packer.batches.SelectedRows`."""


class Input(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One input file as it was read."""

    path: Annotated[str, Meta(pattern=r"\A[^\0]+\Z")]
    """Path as the recipe spells it, with globs expanded, POSIX."""

    split: SplitName
    format: str
    schema: str
    columns: dict[str, str | None]
    """New name of a field → its name in the rows, from the recipe."""

    roles: dict[str, str] = {}
    """Role as the rows spell it → the standard role."""

    num_bytes: Count
    sha256: Hex
    num_rows: Count
    part: Count | None = None
    """Index of the recipe's source that names the file; only if the recipe has rules about rows."""


class ModelFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file of the tokenizer folder, kept in the cache under `model/`."""

    path: FilePath
    num_bytes: Annotated[int, Meta(ge=0, le=MAX_SMALL_BYTES)]
    sha256: Hex


class ModelRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    files: tuple[ModelFile, ...]
    vocab_size: Count
    pad_id: TokenId
    eos_id: TokenId | None
    stop_ids: tuple[TokenId, ...]
    control_ids: tuple[TokenId, ...]
    processor: Hex | None = None
    """Identity of the decoder and of what the model's processor makes of images; only if images are read."""

    image_ids: tuple[TokenId, ...] = ()
    """Ids of the tokens that the processor repeats for an image; they stand nowhere else."""

    @property
    def digests(self) -> dict[str, str]:
        """The sha256 of each of a tokenizer's files, by file name, and the identity of its processor."""
        files = {PurePosixPath(file.path).name: file.sha256 for file in self.files}
        return files if self.processor is None else files | {"processor": self.processor}


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    format: Literal["packer-cache"]
    format_version: Literal[6]
    label_shift: Literal["none"]
    recipe: dict[str, Any]
    engine: str
    engine_version: str
    rules_version: Count
    """Version of the rules that make documents of rows; another version may produce different documents."""

    model: ModelRecord
    inputs: tuple[Input, ...]
    shards: tuple[Shard, ...]
    rejected_sha256: Hex
    rejected_content: Hex
    """sha256 of what its lines say, without names of inputs and words of reasons."""

    totals: Totals
    recipe_fingerprint: Hex
    content_fingerprint: Hex
    versions: dict[str, str]
    """Software that wrote the bytes; not part of the fingerprints above."""

    selection: RowSelection | None = None
    """None if every row with documents is in the split of its source."""

    media: tuple[StoredTable, ...] | None = None
    """The images of each document shard that has any, in order; the key is the shard's. None if none has."""

    @property
    def named_files(self) -> frozenset[str]:
        """Relative paths of all files of the cache besides the manifest and rejected.jsonl."""
        return frozenset({*self.digests, self.pending_rejected} - {REJECTED_NAME})

    @property
    def digests(self) -> dict[str, str]:
        """sha256 of every file of the cache except the manifest, by relative path."""
        model = {f"model/{file.path}": file.sha256 for file in self.model.files}
        return {file.path: file.sha256 for file in self.stored} | model | {REJECTED_NAME: self.rejected_sha256}

    @property
    def document_shards(self) -> list[Shard]:
        return [shard for shard in self.shards if shard.kind == "documents"]

    @property
    def stored(self) -> "tuple[Shard | StoredTable, ...]":
        """All shards and tables."""
        return (*self.shards, *self.tables, *(self.media or ()))

    @property
    def tables(self) -> tuple[StoredTable, ...]:
        """The selection and the traits; empty without a selection."""
        return () if self.selection is None else (self.selection.table, *self.selection.traits)

    @property
    def pending_rejected(self) -> str:
        """Path of its rejected.jsonl until the commit is finished; see :mod:`packer.store.row_tables`."""
        return f"{PRIVATE}/{pending_name(self.rejected_sha256)}"


def pending_name(sha256: str) -> str:
    """Return the name of a rejected.jsonl until the commit is finished."""
    return f"rejected-{sha256[:12]}.jsonl"


class _FreeMappings(msgspec.Struct, frozen=True):
    """The keys of a manifest that may hold anything, as bytes."""

    recipe: msgspec.Raw = msgspec.Raw(b"{}")
    versions: msgspec.Raw = msgspec.Raw(b"{}")


class _Rules(msgspec.Struct, frozen=True):
    """A manifest, as far as its recipe."""

    recipe: Recipe


def encode_manifest(manifest: Manifest) -> bytes:
    """Encode a manifest; equal manifests have equal bytes."""
    fields = sorted(
        (name, value)
        for name in manifest.__struct_fields__
        if (value := getattr(manifest, name)) is not None or name not in {"selection", "media"}
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
    """Prefix a manifest's JSON with its checksum, xxh3-128 of all after it; one that is there is replaced."""
    is_sealed = content.startswith(_SEAL)
    rest = content[_SEAL_BYTES:] if is_sealed else b",\n" + content.removeprefix(b"{").lstrip()
    return _seal_of(rest) + rest


def _seal_of(rest: bytes) -> bytes:
    return _SEAL + xxh3_128_hexdigest(rest).encode() + b'"'


def write_manifest(folder: Path, manifest: Manifest, *, before: bytes | None = None) -> str:
    """Replace the manifest atomically and return its sha256. This commits a build: write it last.

    In a bucket, the manifest that is replaced must still be `before`; with None, there must be none.

    Raises:
        StorageError: the disk cannot be written; the previous manifest is still intact.
        BusyError: another build committed to the same bucket meanwhile; its manifest stays.
    """
    content = encode_manifest(manifest)
    return CacheFiles(folder).commit(MANIFEST_NAME, content, before=before, named=manifest.named_files).sha256


def read_manifest(folder: Path) -> Manifest:
    """Read and check the manifest of a finished cache."""
    return decode_manifest(folder, manifest_bytes(folder))


def manifest_bytes(folder: Path) -> bytes:
    """Read the bytes of the manifest without validating them."""
    if CacheFiles(folder).size(MANIFEST_NAME) is None:
        named = in_shell(folder)
        caches = [*near_paths(folder), *(str(found.parent) for found in sorted(folder.glob(f"*/{MANIFEST_NAME}")))]
        hint = f"packer build SOURCE... -o {named} makes one; packer verify --foreign reads what other tools made"
        raise InputError(
            f"{folder} is not a cache, or its build did not finish: it has no {MANIFEST_NAME}",
            hint=did_you_mean(caches, hint),
        )
    return CacheFiles(folder).read(MANIFEST_NAME, max_bytes=MAX_MANIFEST_BYTES)


def decode_manifest(folder: Path, content: bytes) -> Manifest:
    """Decode and validate a manifest; ``folder`` is the cache that its paths must stay in."""
    path = folder / MANIFEST_NAME
    hint = f"it was changed or damaged after the build; packer build -c RECIPE -o {in_shell(folder)} fixes it"
    try:
        plain = _unsealed(content)
        for free in msgspec.structs.astuple(msgspec.json.decode(plain, type=_FreeMappings)):
            refuse_many_values(bytes(free))
        manifest = msgspec.json.decode(plain, type=Manifest)
        _check_paths(folder, "shards[{}].path", [(shard.path, shard.kind) for shard in manifest.shards])
        _check_paths(folder, "selection {}: path", [(table.path, "rows") for table in manifest.tables])
        _check_paths(folder, "media[{}].path", [(table.path, "media") for table in manifest.media or ()])
        _check_paths(folder, "model.files[{}].path", [(f"model/{file.path}", "model") for file in manifest.model.files])
        msgspec.convert({"recipe": manifest.recipe}, _Rules)
        _check_bounds(manifest)
    except msgspec.ValidationError as error:
        reason = in_words(str(error))
        if reason.endswith("`$.format_version`"):
            reason = f"expected version {FORMAT_VERSION} of the format"
            hint = f"another version of packer made it; packer build -c RECIPE -o {in_shell(folder)} makes it again"
        raise CheckError(f"{path}: {reason}", hint=hint) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CheckError(f"{path}: not valid JSON: {error}", hint=hint) from None
    except ValueError as error:
        raise CheckError(f"{path}: {error}", hint=hint) from None
    return manifest


def _encode_lines(value: Any) -> bytes:
    """Encode as JSON with sorted keys; a list of objects is written one object per line."""
    if isinstance(value, tuple) and value:
        return b"[\n" + b",\n".join(msgspec.json.encode(item, order="sorted") for item in value) + b"\n]"
    return msgspec.json.encode(value, order="sorted")


def _unsealed(content: bytes) -> bytes:
    """Return the JSON without its checksum; ValueError if that is not the one of its bytes."""
    seal, rest = content[:_SEAL_BYTES], content[_SEAL_BYTES:]
    if not seal.startswith(_SEAL):
        raise ValueError("it does not begin with its checksum")
    if seal != _seal_of(rest):
        found = seal[len(_SEAL) : -1].decode("ascii", "replace")
        raise ValueError(f"its checksum, {found}, is not the one of its bytes")
    return b"{" + rest.removeprefix(b",")


def _check_paths(cache: Path, key: str, paths: Sequence[tuple[str, str]]) -> None:
    """Refuse paths that are not in their folder of the cache."""
    for i, (path, folder) in enumerate(paths):
        if not path.startswith(f"{folder}/"):
            raise ValueError(f"{key.format(i)}: expected a path in {folder}/, found '{path}'")
        if leads_outside(cache, path):
            raise ValueError(
                f"{key.format(i)}: '{path}' is a link that leads out of the cache; copy the files themselves"
            )


def _check_bounds(manifest: Manifest) -> None:
    """Refuse numbers that refer to what the manifest does not have; that counts add up is for `verify` to check."""
    model, num_sources = manifest.model, len(manifest.recipe.get("sources", ()))
    if not {"mode", "block_len"} <= manifest.recipe.get("pack", {}).keys():
        raise ValueError("its recipe does not say how documents are packed")
    highest = max(model.pad_id, model.eos_id or 0, *model.stop_ids, *model.control_ids)
    if not highest < model.vocab_size < 2**31:
        raise ValueError(f"model: id {highest} is not in a vocabulary of {model.vocab_size}")
    for entry in manifest.inputs:
        if entry.schema not in ROW_SCHEMAS:
            raise ValueError(f"{entry.path} has rows of an unknown schema, '{entry.schema}'")
        if entry.part is not None and entry.part >= num_sources:
            raise ValueError(f"{entry.path} is named by source {entry.part} of {num_sources}")
    documents = manifest.document_shards
    if manifest.totals.documents and not documents:
        raise ValueError("it names no shards of its documents")
    for shard in documents:
        _check_partition(shard, manifest.inputs)
    if manifest.selection is not None:
        _check_selection(manifest.selection, [shard.num_input_rows for shard in documents])


def _check_selection(selection: RowSelection, num_rows: list[int]) -> None:
    if len(set(selection.splits)) < len(selection.splits):
        raise ValueError("selection: a split is named twice")
    if [table.num_rows for table in selection.traits] != num_rows or selection.table.num_rows != sum(num_rows):
        raise ValueError("selection: its tables do not have a row for each row of the partitions")


def _check_partition(shard: Shard, inputs: Sequence[Input]) -> None:
    if shard.source is None or shard.source >= len(inputs):
        raise ValueError(f"{shard.path} comes from input {shard.source} of {len(inputs)}")
    entry = inputs[shard.source]
    if shard.first_row + shard.num_input_rows > entry.num_rows:
        raise ValueError(f"{shard.path} has rows that {entry.path} does not have")
    if not bool(shard.num_tokens) <= shard.num_last_tokens <= shard.num_tokens:
        raise ValueError(f"{shard.path}: {shard.num_last_tokens} of {shard.num_tokens} tokens end a row")


def check_conservation(manifest: Manifest) -> None:
    """Compare a manifest's totals with its shards and with each other, by the laws of :class:`Totals`."""
    totals = manifest.totals
    documents = partial(sum_of, manifest.document_shards)
    blocks = partial(sum_of, [shard for shard in manifest.shards if shard.kind == "blocks"])
    cut = partial(sum_of, totals.cut.values())
    rejected = sum(totals.rejected.values())
    laws = [
        ("rows = kept + rejected", totals.rows, totals.kept + rejected),
        ("kept = rows with documents in the shards", totals.kept, documents("num_kept")),
        ("rows = rows of the inputs", totals.rows, sum_of(manifest.inputs, "num_rows")),
        ("rows = rows of the partitions", totals.rows, documents("num_input_rows")),
        ("rejected = rejected of the partitions", rejected, documents("num_rejected")),
        ("documents = documents of the shards", totals.documents, documents("num_rows")),
        ("tokens = trained + masked", totals.tokens, totals.trained + totals.masked),
        ("merged = merged of the document shards", totals.merged, documents("num_merged")),
        ("skipped = skipped of the document shards", totals.skipped, documents("num_skipped")),
        ("tokens = tokens of the document shards", totals.tokens, documents("num_tokens")),
        ("trained = trained of the document shards", totals.trained, documents("num_trained")),
        ("blocks = blocks of the shards", totals.blocks, blocks("num_rows")),
    ]
    if manifest.recipe["pack"]["mode"] != "none":
        packed = blocks("num_tokens")
        trained = blocks("num_trained") + cut("trained") + totals.piece_starts
        laws += [
            ("documents = packed + cut", totals.documents, totals.packed + cut("documents")),
            ("tokens = packed + cut", totals.tokens, packed + totals.cut_tokens),
            ("trained = trained in blocks + cut + piece starts", totals.trained, trained),
            ("slots = packed + padding", totals.slots, packed + totals.padding),
            ("slots = blocks × block_len", totals.slots, totals.blocks * manifest.recipe["pack"]["block_len"]),
        ]
    for law, left, right in laws:
        if left != right:
            raise CheckError(f"manifest.json breaks the rule {law}: {left} ≠ {right}")


def sum_of(counted: Iterable[Any], name: str) -> int:
    """Add one number of several shards or other counts."""
    return sum(getattr(each, name) for each in counted)
