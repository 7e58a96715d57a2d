"""From a recipe to a cache: plan, partition tasks, block tasks, and the commit.

`build` is all it takes, `build_share` where several machines take part, and `repack` where only the blocks should
change. `from_python` makes a recipe of what it is called with, and `run` builds that: `plan` finds out what there is to
do; `documents` has every partition made that is not there; `partition` makes the document shard of one; `packing` and
`blocks` pack, gather and commit; `executor` runs tasks, in worker processes where that pays, `ray_workers` on a
cluster; `identity` and `record` name what was built; `losses` says what is not in it; `suggestions` says what to do
about a rejection.
"""

from packer.pipeline.build_result import BuildResult
from packer.pipeline.documents import Share
from packer.pipeline.from_python import build
from packer.pipeline.repacking import repack
from packer.pipeline.run import build_share
from packer.pipeline.timing import Profile

__all__ = ["BuildResult", "Profile", "Share", "build", "build_share", "repack"]
