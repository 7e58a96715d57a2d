"""Build a cache from a recipe: plan, partition tasks, block tasks, and the commit.

The entry points are `build`, `build_share` (several machines build one cache) and `repack` (rebuild only the blocks).
`from_python` turns the arguments of `build` into a recipe, and `run` builds it: `plan` determines the work; `documents`
reuses finished partitions and makes the missing ones; `partition` makes one partition's document shard; `packing` and
`blocks` pack, gather and commit; `executor` runs tasks, in worker processes if that is faster, and `ray_workers` on a
cluster; `identity` and `record` identify and describe the result; `losses` reports what was left out; `suggestions`
proposes remedies for rejections.
"""

from packer.pipeline.build_result import BuildResult
from packer.pipeline.documents import Share
from packer.pipeline.from_python import build
from packer.pipeline.repacking import repack
from packer.pipeline.run import build_share
from packer.pipeline.timing import Profile

__all__ = ["BuildResult", "Profile", "Share", "build", "build_share", "repack"]
