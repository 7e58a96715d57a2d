"""The columns of both kinds of shard, as the format says."""

from packer.store.entries import blocks_schema, documents_schema


def _columns(schema) -> dict[str, str]:
    return {field.name: str(field.type) for field in schema}


DOCUMENTS = {
    "doc_id": "int64",
    "input_ids": "large_list<item: int32>",
    "labels": "large_list<item: int32>",
    "spans": "list<item: struct<message: int32, start: int32, end: int32>>",
    "length": "int32",
    "num_trained": "int32",
    "row": "int32",
    "sample_id": "string",
    "digest": "uint64",
}

BLOCKS = {
    "input_ids": "fixed_size_list<item: int32>[8]",
    "labels": "fixed_size_list<item: int32>[8]",
    "position_ids": "fixed_size_list<item: int32>[8]",
    "doc_ids": "list<item: int64>",
    "doc_starts": "list<item: int32>",
    "doc_lengths": "list<item: int32>",
    "doc_places": "list<item: int32>",
    "seq_lengths": "list<item: int32>",
    "length": "int32",
    "num_trained": "int32",
    "digest": "uint64",
}


def test_the_schemas_are_the_formats() -> None:
    for expected, found in [(DOCUMENTS, documents_schema()), (BLOCKS, blocks_schema(8))]:
        assert _columns(found) == expected
        assert list(_columns(found)) == list(expected)


def test_a_file_names_its_kind_and_format_version() -> None:
    assert documents_schema().metadata == {b"packer.kind": b"documents", b"packer.format_version": b"6"}
    assert blocks_schema(8).metadata == {b"packer.kind": b"blocks", b"packer.format_version": b"6"}
