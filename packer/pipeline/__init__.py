"""Build a cache from a recipe: plan, partition tasks, block tasks, and the commit.

`from_python` turns the arguments of `build` into a recipe, and `run` builds it. `plan` determines the work; `documents`
reuses finished partitions and makes the missing ones; `partition` makes one partition's document shard; `packing` and
`blocks` pack, gather and commit; `executor` runs tasks, in worker processes if that is faster, and `ray_workers` on a
cluster; `identity` and `record` identify and describe the result; `losses` reports what was left out; `suggestions`
proposes remedies for rejections.
"""
