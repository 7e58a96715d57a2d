"""Files, lock, Arrow, manifest and digests: the only part of packer that writes a cache.

    failures     what the disk refuses, as StorageError
    row_digest   xxh3-64 of a row: the definition
    digest       content ids of documents, digests of blocks, xxh3-128 and sha256 of files
    folder       lock, atomic files, sweep
    schema       Arrow schemas of both kinds of shard
    columns      the rows of one record batch as flat arrays, and their digests
    shard_file   one Arrow file from temporary name to content-addressed name
    documents    writing a document shard
    blocks       writing a block shard
    manifest     what a cache is made of; read strictly, written last
    rejected     rejected.jsonl
    exported     export.json
    pages        values through a map of the file, or read from it
    views        a record batch as flat arrays over the file's pages
    mapping      a shard mapped read-only, its structure checked before it is believed
    chunks       rows of many shards under one numbering
    document_shards, block_shards   reading; each row's digest is checked on first touch
    cache        a finished cache, opened

Nothing is imported here: a reader of blocks pays for what it uses.
"""
