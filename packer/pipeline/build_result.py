"""The result of a build, and its text form."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from packer.display import duration, number, one_line, plural, rate
from packer.pipeline import summary
from packer.pipeline.changes import Changes
from packer.pipeline.losses import TokenLosses
from packer.pipeline.rejected_inputs import RejectedInput
from packer.pipeline.row_report import RowReport
from packer.pipeline.timing import NO_TIME, Profile
from packer.store.cache import Cache
from packer.store.manifest import Manifest
from packer.store.mirror import shown


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildResult:
    """The result of a build."""

    folder: Path
    """The cache; for a cache in a bucket, its local folder."""

    manifest: Manifest | None
    """Manifest of the cache; None after a dry run that found work to do."""

    fingerprint: str | None
    built: bool
    """False if the cache was up to date already, and after a dry run."""

    num_partitions_built: int
    num_partitions_reused: int
    left_out: TokenLosses | None = None
    """Tokens that are in no block, or None if they are not worth a warning; None after a dry run that found work to
    do."""

    rejected_inputs: tuple[RejectedInput, ...] = ()
    """Inputs of which all rows, or many, were rejected although others were kept; only after a build."""

    replaced: Changes | None = None
    """What would change about the existing cache; only after a dry run."""

    rows: RowReport | None = None
    """Results of the rules about rows, or None if the recipe has none."""

    settled_keys: tuple[str, ...] = ()
    """A sentence about each key that the recipe left open, the rows of a source need, and the cache's recipe has.
    Empty if nothing had to be planned."""

    profile: Profile = NO_TIME
    """Where the build spent its time."""

    @property
    def cache(self) -> Cache:
        """The cache, opened."""
        return Cache.open(self.folder)

    def lines(self, seconds: float, *, verbose: bool = False) -> Iterator[str]:
        """Yield the report as lines of text.

        Args:
            seconds: elapsed time of the build.
            verbose: include the content and recipe fingerprints.
        """
        manifest, reused, name = self.manifest, self.num_partitions_reused, shown(self.folder)
        if manifest is None:
            todo = plural(self.num_partitions_built, "partition")
            yield f"would build {todo}, reuse {number(reused)}; nothing was written"
            replaced = [f"{name}: {each}" for each in (self.replaced.sentences() if self.replaced else ())]
            yield from (*replaced, *self.settled_keys)
            return
        if not self.built:
            yield f"{name} is up to date"
        else:
            speed = f"{rate(manifest.totals.tokens, seconds)} tokens/s" if not reused else None
            engine = f", engine {manifest.engine}" if self.num_partitions_built else ""
            how = speed or f"{plural(reused, 'partition')} reused"
            yield f"built {name} in {duration(seconds)}, {how}{engine}"
        yield ""
        yield from (line for each in self.settled_keys for line in (each, ""))
        for entry in self.rejected_inputs:
            yield from summary.of_rejected_input(entry)
        if self.rows is not None:
            yield from summary.of_row_warnings(self.rows)
        if self.left_out is not None:
            yield from summary.of_left_out(self.left_out)
        if self.rejected_inputs or self.left_out is not None:
            yield "to build into the same folder with such an option, add --force"
            yield ""
        yield from summary.of_totals(manifest, self.folder, self.rows, warned=self.left_out is not None)
        if self.rows is not None:
            listed = f"listed in {name}/rejected.jsonl"
            yield from summary.of_splits(self.rows)
            yield from summary.of_rules(self.rows, manifest.totals.rows, listed=listed)
        yield ""
        yield f"fingerprint  {self.fingerprint}"
        if verbose:
            yield f"content      {manifest.content_fingerprint}"
            yield f"recipe       {manifest.recipe_fingerprint}"
        if self.built and manifest.totals.blocks:
            yield ""
            yield f"next: packer inspect {shlex.quote(name)}"

    def __repr__(self) -> str:
        """The lines as one text, for notebooks."""
        return "\n".join(map(one_line, self.lines(sum(self.profile.parts.values()))))
