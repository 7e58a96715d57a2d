"""One build, alone in its process: prints a line of JSON with seconds, tokens and size.

The clock runs from the recipe to the commit; what is imported before it, as TRL is for the peer.
"""

import json
import sys
import time
from pathlib import Path

from packer.pipeline import build
from packer.recipe import make_recipe


def main() -> None:
    """Arguments: the recipe as JSON, the folder, processes."""
    recipe = make_recipe(json.loads(sys.argv[1]))
    start = time.perf_counter()
    result = build(recipe, sys.argv[2], jobs=int(sys.argv[3]))
    seconds = time.perf_counter() - start
    assert result.manifest is not None
    num_bytes = sum(path.stat().st_size for path in Path(sys.argv[2]).rglob("*") if path.is_file())
    print(json.dumps({"seconds": seconds, "tokens": result.manifest.totals.tokens, "bytes": num_bytes}))


if __name__ == "__main__":
    main()
