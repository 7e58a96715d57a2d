"""Inspection of caches and of the inputs they are built from: integrity, contents, statistics and readable views.

Import from its modules: this one imports none, since each of them needs other parts of packer.
"""
