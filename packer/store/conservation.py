"""The conservation laws of a cache: what went in is in it, or accounted for."""

from packer.errors import CheckError
from packer.store.manifest import Manifest


def check_conservation(manifest: Manifest) -> None:
    """Compare a manifest's totals with its shards and with each other.

    rows = kept + Σ rejected; tokens = trained + masked; documents = packed + Σ cut; tokens = tokens in blocks + Σ cut;
    trained = trained in blocks + Σ cut + piece starts; slots = tokens in blocks + separators + padding.

    Raises:
        CheckError: a law is broken; names it with both sides.

    """
    totals = manifest.totals
    documents = [shard for shard in manifest.shards if shard.kind == "documents"]
    blocks = [shard for shard in manifest.shards if shard.kind == "blocks"]
    packed, cuts = sum(shard.num_tokens for shard in blocks), totals.cut.values()
    laws = [
        ("rows = kept + rejected", totals.rows, totals.kept + sum(totals.rejected.values())),
        ("kept = rows with documents in the shards", totals.kept, sum(shard.num_kept for shard in documents)),
        ("rows = rows of the inputs", totals.rows, sum(entry.num_rows for entry in manifest.inputs)),
        ("rows = rows of the partitions", totals.rows, sum(shard.num_input_rows for shard in documents)),
        (
            "rejected = rejected of the partitions",
            sum(totals.rejected.values()),
            sum(s.num_rejected for s in documents),
        ),
        ("documents = documents of the shards", totals.documents, sum(shard.num_rows for shard in documents)),
        ("tokens = trained + masked", totals.tokens, totals.trained + totals.masked),
        ("merged = merged of the document shards", totals.merged, sum(shard.num_merged for shard in documents)),
        ("skipped = skipped of the document shards", totals.skipped, sum(shard.num_skipped for shard in documents)),
        ("tokens = tokens of the document shards", totals.tokens, sum(shard.num_tokens for shard in documents)),
        ("trained = trained of the document shards", totals.trained, sum(shard.num_trained for shard in documents)),
        ("blocks = blocks of the shards", totals.blocks, sum(shard.num_rows for shard in blocks)),
    ]
    if manifest.recipe["pack"]["mode"] != "none":
        laws += [
            ("documents = packed + cut", totals.documents, totals.packed + sum(cut.documents for cut in cuts)),
            ("tokens = packed + cut", totals.tokens, packed + totals.cut_tokens),
            (
                "trained = trained in blocks + cut + piece starts",
                totals.trained,
                sum(shard.num_trained for shard in blocks) + sum(cut.trained for cut in cuts) + totals.piece_starts,
            ),
            ("slots = packed + separators + padding", totals.slots, packed + totals.separators + totals.padding),
            ("slots = blocks × block_len", totals.slots, totals.blocks * manifest.recipe["pack"]["block_len"]),
        ]
    for law, left, right in laws:
        if left != right:
            raise CheckError(f"manifest.json breaks the law {law}: {left} ≠ {right}")
