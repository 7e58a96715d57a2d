"""Files, lock, Arrow, manifest and digests: the only part of packer that writes a cache.

    digest       definitions: content ids of documents, row digests, xxh3-128 and sha256 of files
    folder       lock, atomic files, sweeping
    files        the files of a cache by name: all reading, writing and renaming goes through here
    schema       Arrow schemas of both kinds of shard
    arrow_columns   the rows of one record batch as flat arrays, and their digests
    shard_file   one Arrow file from temporary name to content-addressed name
    writing      document shards and block shards
    manifest     what a cache is made of; read strictly, written last
    rejected     rejected.jsonl
    views        a record batch as flat arrays over a map of the file, or read from it
    mapping      a shard mapped read-only, its structure checked before it is believed
    numbered_rows   rows of many shards under one numbering; each row's digest is checked on first touch
    document_shards, block_shards   reading both kinds
    cache        a finished cache, opened; its content fingerprint and conservation laws

Nothing is imported here: a reader of blocks pays for what it uses.
"""
