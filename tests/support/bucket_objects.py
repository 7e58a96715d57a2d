"""The objects of a cache in a bucket, and the files of a folder that they must be."""

import json

NUM_FILES = 12
"""Inputs of the recipe of tests/cluster, each of which is a partition."""


def objects(bucket):
    """Every object of a cache but the notes about finished partitions."""
    names = [name for name in bucket.sizes() if not name.startswith(".packer/partitions/")]
    return {name: bucket.read(name) for name in names}


def files(folder):
    """What the objects of a cache must be."""
    found = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    del found[".packer/lock"]
    manifest = json.loads(found["manifest.json"])
    return found | {f".packer/rejected-{manifest['rejected_sha256'][:12]}.jsonl": found["rejected.jsonl"]}


def put(bucket, folder):
    """Copy the files of a cache into a bucket, as any tool does."""
    for path in folder.rglob("*"):
        if path.is_file():
            bucket.replace(path.relative_to(folder).as_posix(), path)
