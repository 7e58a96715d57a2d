"""What a large build needs, from figures that were measured on a small one: time, traffic, requests, disks, money.

    python cost.py --terabytes 10 --nodes 64 --processors 32 --gbit 25

Every line is arithmetic over MEASURED and PRICES. Put in what you measure and pay: `packer build --json` gives the
seconds, `packer stats CACHE --json` the tokens, and `du` the bytes.
"""

import argparse

MEASURED = {
    # 86.8 MB of Alpaca (208,008 short rows), Llama 3 tokenizer, engine fast, 2,048 tokens a block.
    "input_bytes_a_token": 3.84,
    "document_bytes_a_token": 8.86,
    "block_bytes_a_token": 12.29,
    # Processor time of 3 files more, from plan to commit, in one process on a shared machine.
    "input_bytes_a_cpu_second": 5.43e6,
    # Requests that a proxy before the store counted.
    "puts_a_partition": 2,  # its shard, and the note that it is finished
    "gets_a_partition": 6,  # its last rows, the note, the shard when it is packed, columns of it by ranges
    "puts_a_block_shard": 1,
    # Inputs are read to be cut and to be tokenized; document shards are packed in groups.
    "input_reads": 2,
    "document_reads": 1.1,
}
PRICES = {  # dollars; assumed on 2026-11-23, as lists for us-east-1 were remembered: put in your own
    "1000 puts": 0.005,
    "1000 gets": 0.0004,
    "GB a month": 0.022,
    "node an hour": 1.5,
}
BLOCK_SHARD_BYTES = 512 * 2**20
INPUT_REQUEST_BYTES = 16 * 2**20
MANIFEST_BYTES_A_PARTITION = 620


def rows(*, terabytes: float, nodes: int, processors: int, gbit: float, partition_mib: int, files: int) -> list[str]:
    """The table, a line each."""
    of, size = MEASURED, terabytes * 1e12
    tokens = size / of["input_bytes_a_token"]
    documents, blocks = tokens * of["document_bytes_a_token"], tokens * of["block_bytes_a_token"]
    # A file ends with a smaller partition, and begins with 17 more than its size would take.
    partitions = size / (partition_mib * 2**20) + files * (17 if partition_mib == 8 else 1)
    shards = blocks / BLOCK_SHARD_BYTES
    seconds = size / of["input_bytes_a_cpu_second"] / (nodes * processors)
    traffic = of["input_reads"] * size + (1 + of["document_reads"]) * documents + blocks
    network = traffic / (nodes * gbit * 1e9 / 8)
    puts = of["puts_a_partition"] * partitions + of["puts_a_block_shard"] * shards
    gets = of["gets_a_partition"] * partitions + of["input_reads"] * size / INPUT_REQUEST_BYTES
    hours = (seconds + network) / 3600
    requests = puts / 1000 * PRICES["1000 puts"] + gets / 1000 * PRICES["1000 gets"]
    stored = documents + blocks
    table = [
        ("tokens", f"{tokens / 1e12:.2f} T", "input bytes / bytes a token"),
        ("partitions", f"{partitions / 1e3:,.0f} k", f"of {partition_mib} MiB, in {files:,} files"),
        ("block shards", f"{shards / 1e3:,.0f} k", "of 512 MiB"),
        ("manifest", f"{(partitions * MANIFEST_BYTES_A_PARTITION + size / 12_000) / 1e9:.2f} GB", "at most 1.07"),
        ("stored", f"{stored / 1e12:,.1f} TB", f"documents {documents / 1e12:.1f}, blocks {blocks / 1e12:.1f}"),
        ("processors", f"{seconds / 60:,.0f} min", f"{nodes} x {processors}, all busy"),
        ("network", f"{network / 60:,.0f} min", f"{traffic / 1e12:,.0f} TB, {nodes} x {gbit:g} Gbit/s"),
        (
            "disk of a node",
            f"{(documents * of['document_reads'] + stored) / nodes / 1e12:.2f} TB",
            "what it made and fetched",
        ),
        ("requests", f"${requests:,.0f}", f"{puts / 1e6:.1f} M puts, {gets / 1e6:.1f} M gets"),
        ("nodes", f"${hours * nodes * PRICES['node an hour']:,.0f}", f"{hours:.1f} h, one after the other"),
        ("storage", f"${stored / 1e9 * PRICES['GB a month']:,.0f}", "a month"),
    ]
    return [f"{name:16}{value:>10}  {how}" for name, value, how in table]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--terabytes", type=float, default=10)
    parser.add_argument("--nodes", type=int, default=64)
    parser.add_argument("--processors", type=int, default=32)
    parser.add_argument("--gbit", type=float, default=25)
    parser.add_argument("--partition-mib", type=int, default=32)
    parser.add_argument("--files", type=int, default=10_000)
    asked, _ = parser.parse_known_args()
    print("\n".join(rows(**vars(asked))))
