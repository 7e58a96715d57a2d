"""What a build, or packing again, did."""

import io
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path

from packer.pipeline.changes import Changes
from packer.pipeline.losses import LeftOut
from packer.pipeline.progress import NO_TIME, Profile
from packer.pipeline.rejected_inputs import RejectedInput
from packer.pipeline.row_report import RowReport
from packer.store.cache import Cache
from packer.store.manifest import Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildResult:
    """What a build did."""

    folder: Path
    manifest: Manifest | None
    """None after a dry run of a build that has something to do."""

    fingerprint: str | None
    built: bool
    """False where the cache was up to date already, and for a dry run."""

    num_partitions_built: int
    num_partitions_reused: int
    left_out: LeftOut | None = None
    """Tokens in no block, where they are worth a warning; None after a dry run of a build that has something to do."""

    rejected_inputs: tuple[RejectedInput, ...] = ()
    """Inputs of which nothing was kept, where others were; after a build alone."""

    replaced: Changes | None = None
    """After a dry run, what would change about the cache that is there."""

    rows: RowReport | None = None
    """What the rules about rows came to, where the recipe has some."""

    profile: Profile = NO_TIME
    """Where the time of a build went."""

    @property
    def cache(self) -> Cache:
        """The cache, opened."""
        return Cache.open(self.folder)

    def __repr__(self) -> str:
        """What `packer build` prints, by its own code: one place has these words."""
        from packer_cli.result import print_result  # noqa: PLC0415 - of the command line, for whoever prints a result

        text = io.StringIO()
        with redirect_stdout(text):
            print_result(self, sum(self.profile.parts.values()), done="built", verbose=False)
        return text.getvalue().rstrip()
