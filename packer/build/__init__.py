"""From a recipe to a cache: plan, partition tasks, block tasks, and the commit.

`build(recipe, folder)` is all a user needs, and `repack` where only the blocks should change. `plan` finds out what
there is to do; `partition` makes the document shard of one partition; `packing` and `blocks` pack, gather and commit;
`pool` runs tasks, in `workers` where that pays; `identity` and `provenance` name what was built; `hints` knows the way
out of a rejection.
"""

from packer.build.profile import Profile
from packer.build.progress import Progress
from packer.build.repacking import repack
from packer.build.run import BuildResult, build

__all__ = ["BuildResult", "Profile", "Progress", "build", "repack"]
