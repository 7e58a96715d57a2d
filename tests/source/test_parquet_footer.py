"""Where row groups lie, read without pyarrow, is what pyarrow says of files that are whole."""

import pyarrow.parquet as pq
import pytest
from written import as_parquet

from packer.source.parquet_footer import row_groups

ROWS = [{"text": "x" * i, "m": [{"role": "a", "n": i}] * (i % 3), "f": i / 3, "b": i % 2 == 0} for i in range(40)]


def by_pyarrow(path):
    found = []
    metadata = pq.ParquetFile(path).metadata
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        chunks = [group.column(i) for i in range(group.num_columns)]
        starts = [min(each.data_page_offset, each.dictionary_page_offset or each.data_page_offset) for each in chunks]
        stops = [start + each.total_compressed_size for start, each in zip(starts, chunks, strict=True)]
        found.append((min(starts), max(stops), group.num_rows, group.total_byte_size))
    return found


@pytest.mark.parametrize("row_group_size", [1, 7, 100])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"compression": "zstd", "use_dictionary": False},
        {"data_page_version": "2.0", "write_page_index": True, "write_page_checksum": True},
        {"write_statistics": False, "store_schema": False},
        {"sorting_columns": [pq.SortingColumn(0)], "compression": "none"},
    ],
)
def test_groups_lie_where_pyarrow_says(tmp_path, row_group_size, options):
    path = tmp_path / "t.parquet"
    path.write_bytes(as_parquet(ROWS, row_group_size=row_group_size, **options))
    found = [(group.start, group.stop, group.num_rows, group.num_bytes) for group in row_groups(path)]
    assert found == by_pyarrow(path)
    assert len(found) == -(-40 // row_group_size)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "does not end in a footer"),
        (b"PAR1", "does not end in a footer"),
        (b"PAR1\xff\xff\xff\xffPAR1", "does not end in a footer"),
        (b"PAR1\x01\x00\x00\x00PARE", "is encrypted"),
        (b"PAR1\x19\x01\x00\x00\x00PAR1", "ends too early"),
        (b"PAR1" + b"\x1c" * 100 + b"\x64\x00\x00\x00PAR1", "nested too deeply"),
        (b"PAR1\x16" + b"\xff" * 20 + b"\x15\x00\x00\x00PAR1", "too large"),
        (b"PAR1\x1e\x00\x02\x00\x00\x00PAR1", "is damaged"),
    ],
)
def test_a_footer_that_makes_no_sense_is_told(tmp_path, content, said):
    (tmp_path / "t").write_bytes(content)
    with pytest.raises(ValueError, match=said):
        row_groups(tmp_path / "t")


def test_rows_in_other_files_are_told(tmp_path):
    """`_metadata` of a folder: row groups that name their files."""
    (tmp_path / "part.parquet").write_bytes(as_parquet(ROWS))
    metadata = pq.read_metadata(tmp_path / "part.parquet")
    metadata.set_file_path("part.parquet")
    metadata.write_metadata_file(tmp_path / "_metadata")
    with pytest.raises(ValueError, match="lie in other files"):
        row_groups(tmp_path / "_metadata")
