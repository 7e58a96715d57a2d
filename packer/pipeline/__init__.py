"""Build a cache from a recipe, in this order.

`from_python` turns the arguments of `build` into a recipe, and `run` builds it. `plan/` determines the work, and what
is there already; `documents` makes what is missing, each partition by `partition`, with the stages in `stages`;
`selecting` decides which rows are in which split; `packing` and `blocks` pack and gather; `commit` writes the
manifest. `workers/` runs tasks; `messages/` is what a build says; `identity` tells whether anything changed.
"""
