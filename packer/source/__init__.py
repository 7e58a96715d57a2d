"""The source stage: reads files into samples.

`expand` finds the files, `detect_format` and `detect_schema` determine what they contain, `partition_file` cuts them
into pieces that depend only on their bytes, and `read_rows` reads a piece as batches of samples and rejections. No row
is lost: each becomes one or the other. `InputFile` reads the first rows of a file without cutting it. What is asked
about rows, and proposed for those that fit no schema, is in :mod:`packer.questions`.

`rows` reads every format as `FileRow`s: elements of JSON, and lines that may be faulty, stay bytes until they are
decoded, while other lines (`decoded_lines`), rows of CSV (`CsvFile`) and of Parquet and Arrow (`tables`) are values
already. From then on, all formats are alike: `read_plain_rows` reads those with nothing but texts in them, `read_row`
any other.
"""
