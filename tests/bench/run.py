"""`make bench`: what things cost, each as a ratio to a plain operation on the same data, measured in one run.

Times on shared machines are noise; ratios within a run say more. Each line is the best of a few rounds. ``--huge`` packs a
hundred million documents too, which takes about 4 GB of memory, and builds 832,000 rows. TRL and
`datasets` are compared with where they are installed, and real documents are packed and read where
``PACKER_REAL`` says they lie. ``--peers`` has datatrove tokenize texts too, which preparing/install.py installs.
``--only reading`` prints the tables of one kind. ``waits``, which needs ``PACKER_REAL``, is measured only when it is asked for.
"""

import argparse
from collections.abc import Callable, Iterable

from building import building_tables
from cores import cores_tables
from floors import floors_table
from images import images_tables
from packing import mixing_table, packing_table
from reading import reading_tables
from rendering import rendering_tables
from rich.console import Console
from rich.table import Table
from verifying import verifying_table
from waits import waits_table

_ASKED_FOR = ("waits",)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--huge", action="store_true", help="a hundred million documents, 832,000 rows")
    parser.add_argument(
        "--only",
        choices=("building", "floors", "cores", "rendering", "packing", "reading", "verifying", "images", *_ASKED_FOR),
        help="the tables of one kind",
    )
    parser.add_argument("--peers", action="store_true", help="datatrove beside builds, too")
    options = parser.parse_args()
    kinds: dict[str, Callable[[], Iterable[Table]]] = {
        "building": lambda: building_tables(huge=options.huge, peers=options.peers),
        "floors": lambda: [floors_table()],
        "cores": cores_tables,
        "rendering": rendering_tables,
        "packing": lambda: [packing_table(huge=options.huge), mixing_table()],
        "reading": reading_tables,
        "verifying": lambda: [verifying_table()],
        "images": images_tables,
        "waits": lambda: [waits_table()],
    }
    console = Console(width=120)
    for kind, tables in kinds.items():
        if options.only == kind or (options.only is None and kind not in _ASKED_FOR):
            for table in tables():  # printed as it is finished: some take minutes
                console.print(table, end="\n\n")


if __name__ == "__main__":
    main()
