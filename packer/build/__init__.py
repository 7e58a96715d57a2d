"""From a recipe to a cache: plan, partition tasks, block tasks, and the commit.

`build(recipe, folder)` is all a user needs, and `repack` where only the blocks should change. `plan` finds out what
there is to do; `partition` makes the document shard of one partition; `packing` and `blocks` pack, gather and commit;
`executor` runs tasks, in worker processes where that pays; `identity` and `provenance` name what was built; `losses`
says what is not in it; `hints` knows the way out of a rejection.
"""

from packer.build.losses import LeftOut, left_out
from packer.build.progress import Profile, Progress
from packer.build.repacking import repack
from packer.build.run import BuildResult, build

__all__ = ["BuildResult", "LeftOut", "Profile", "Progress", "build", "left_out", "repack"]
