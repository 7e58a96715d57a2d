"""The source stage: reads files into samples.

`expand` finds the files, `detect_format` and `detect_schema` determine what they contain, `partition_file` cuts them
into pieces that depend only on their bytes, and `read_rows` reads a piece as batches of samples and rejections. No row
is lost: each becomes one or the other. `InputFile` reads the first rows of a file without cutting it.

`rows` reads every format as `FileRow`s: lines and elements of JSON stay bytes until they are decoded, while rows of CSV
(`csv_rows`) and of Parquet and Arrow (`tables`) are values already. From `read_row` on, all formats are alike.
"""

from packer.source.chat import TEXT_FIELDS, unused_keys
from packer.source.detect import detect_format, detect_schema, field_names, fields_found, first_rows
from packer.source.file_bytes import NoRowsError, jq_command, quoted
from packer.source.file_cuts import partition_file, smallest_partition
from packer.source.files import STANDARD_INPUT, data_set_files, data_set_splits, expand, input_path, is_data_set
from packer.source.partition import Partition
from packer.source.roles import roles_hint
from packer.source.row import composed
from packer.source.rows import InputFile, RawRow, read_rows, refuse_empty
from packer.source.schema import SCHEMAS, fields_read
from packer.source.schema_errors import (
    columns_hint,
    list_names,
    refuse_absent_columns,
    refuse_unread_columns,
    schema_hint,
)
from packer.source.synonyms import columns_yaml, meant_field

__all__ = [
    "SCHEMAS",
    "STANDARD_INPUT",
    "TEXT_FIELDS",
    "InputFile",
    "NoRowsError",
    "Partition",
    "RawRow",
    "columns_hint",
    "columns_yaml",
    "composed",
    "data_set_files",
    "data_set_splits",
    "detect_format",
    "detect_schema",
    "expand",
    "field_names",
    "fields_found",
    "fields_read",
    "first_rows",
    "input_path",
    "is_data_set",
    "jq_command",
    "list_names",
    "meant_field",
    "partition_file",
    "quoted",
    "read_rows",
    "refuse_absent_columns",
    "refuse_empty",
    "refuse_unread_columns",
    "roles_hint",
    "schema_hint",
    "smallest_partition",
    "unused_keys",
]
