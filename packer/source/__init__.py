"""From files to samples: the first stage.

`expand` finds the files, `detect_format` and `detect_schema` say what they are, `partition_file` cuts them into pieces
that depend on nothing but their bytes, and `read_rows` turns a piece into batches of samples and rejections. No row is
lost: each is one or the other. `InputFile` reads the first rows of a file without cutting it.

`rows` has the rows of every format as `FileRow`s: lines and elements of JSON are bytes until they are decoded, those of
CSV (`csv_rows`) and of Parquet and Arrow (`tables`) come as values. From `read_row` on nobody can tell them apart.
"""

from packer.source.chat import unused_keys
from packer.source.columns import fields_read
from packer.source.dataset_folder import data_set_files, is_data_set, splits_without_files
from packer.source.detect import detect_format, detect_schema, field_names, hint_of_schema, refuse_missing_columns
from packer.source.file_bytes import NoRowsError, shown
from packer.source.file_cuts import partition_file
from packer.source.files import expand
from packer.source.input_file import InputFile, RawRow
from packer.source.partition import FilePartitions, Partition
from packer.source.read import lines_of_rows, read_rows
from packer.source.rows import refuse_empty
from packer.source.schema import Schema
from packer.source.schema_errors import listed, refuse_absent_columns, refuse_unread_columns
from packer.source.standard_input import STANDARD_INPUT, naming_standard_input, place_of

__all__ = [
    "STANDARD_INPUT",
    "FilePartitions",
    "InputFile",
    "NoRowsError",
    "Partition",
    "RawRow",
    "Schema",
    "data_set_files",
    "detect_format",
    "detect_schema",
    "expand",
    "field_names",
    "fields_read",
    "hint_of_schema",
    "is_data_set",
    "lines_of_rows",
    "listed",
    "naming_standard_input",
    "partition_file",
    "place_of",
    "read_rows",
    "refuse_absent_columns",
    "refuse_empty",
    "refuse_missing_columns",
    "refuse_unread_columns",
    "shown",
    "splits_without_files",
    "unused_keys",
]
