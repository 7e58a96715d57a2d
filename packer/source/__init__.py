"""From files to samples: the first stage.

`expand` finds the files, `detect_format` and `detect_schema` say what they are, `partition_file` cuts them into pieces
that depend on nothing but their bytes, and `read_rows` turns a piece into batches of samples and rejections. No row is
lost: each is one or the other. `InputFile` reads the first rows of a file without cutting it.
"""

from packer.source.detect import detect_format, detect_schema, refuse_missing_columns
from packer.source.files import expand
from packer.source.first_rows import InputFile, RawRow
from packer.source.partition import FilePartitions, Partition, partition_file
from packer.source.read import lines_of_rows, read_rows
from packer.source.schema import Schema

__all__ = [
    "FilePartitions",
    "InputFile",
    "Partition",
    "RawRow",
    "Schema",
    "detect_format",
    "detect_schema",
    "expand",
    "lines_of_rows",
    "partition_file",
    "read_rows",
    "refuse_missing_columns",
]
