"""Files, lock, Arrow, manifest and digests: the only part of packer that writes a cache.

    digest       definitions: content ids of documents, row digests, xxh3-128 and sha256 of files
    folder       lock, atomic files, removal of leftovers
    files        the files of a cache by name: all reading, writing and renaming goes through here
    bucket       objects of a bucket (`s3://`, `gs://`, `az://`)
    mirror       a local folder that mirrors a cache in a bucket
    objects      objects of a bucket as inputs
    own_files    files, locks and folders, opened although somebody else may have filled them
    place        resolves the name of a cache to a folder: local, in a bucket, or on the Hub
    schema       Arrow schemas of both kinds of shard
    arrow_columns   the rows of one record batch as flat arrays, viewed in a memory map, and their digests
    shard_file   one Arrow file, from its temporary name to its content-addressed name
    writing      document shards and block shards
    row_tables, selected   tables with a row per input row: traits, and the selection
    entries      the manifest's entries for Arrow files, and the counts that the conservation laws relate
    manifest     contents of a cache; read strictly, written last
    fingerprint  what two people compare: the rows, and what decides them
    rejected     rejected.jsonl
    mapping      a shard mapped read-only, its structure checked before use; columns read from their places
    numbered_rows   rows of many shards under one numbering; each row's digest is checked on first access
    document_shards, block_shards   readers for both kinds
    cache        a finished cache, opened; its content fingerprint and conservation laws

This module imports none of them, so that a reader of blocks loads only what it uses.
"""
