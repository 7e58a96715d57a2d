"""Thousands of rows made by changing good ones, against Python's own JSON as the oracle."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from faults.amount import amount
from faults.jobs import Job
from faults.json_oracle import BLANK, agrees, refuse
from faults.lab import Lab
from faults.mutated_rows import SCHEMAS, mutated

from packer.batches import Sample
from packer.errors import InputError
from packer.rejections import CODES
from packer.source.partition import partition_file
from packer.source.rows import read_rows
from packer.store.manifest import check_conservation, read_manifest
from packer.store.row_tables import read_rejected


def verdicts(path: Path, schema: str, **options: Any) -> list[tuple[int | None, Sample | tuple[str, str]]]:
    """Line and fate of every row of a file, in order."""
    fates: list[tuple[int | None, Sample | tuple[str, str]]] = []
    for partition in partition_file(path, **options).partitions:
        found: dict[int, Any] = {}
        lines: list[int | None] = []
        for batch in read_rows(partition, schema=schema, columns={}, max_row_bytes=2**20, batch_rows=100):
            found |= {sample.row: sample for sample in batch.samples}
            found |= {each.row: (each.code, each.reason) for each in batch.rejections}
            lines += batch.lines or [None] * batch.num_rows
        assert sorted(found) == list(range(partition.num_rows))
        fates += [(line, fate) for line, (_, fate) in zip(lines, sorted(found.items()), strict=True)]
    return fates


def numbered_alike(fates: list[tuple[int | None, Any]]) -> list[tuple[int | None, Any]]:
    """The same, with samples as what they hold: their number is one of their partition."""
    return [
        (line, (fate.kind, fate.messages, fate.tools, fate.text, fate.prompt, fate.template_kwargs, fate.sample_id))
        if isinstance(fate, Sample)
        else (line, fate)
        for line, fate in fates
    ]


@pytest.mark.parametrize("schema", SCHEMAS)
def test_a_generated_row_is_kept_or_rejected_as_json_says_it_must_be(
    lab: Lab, job: Job, tmp_path: Path, schema: str, tally
) -> None:
    """In whatever partitions it is read; and what is rejected when read is rejected by a build, under its line."""
    tried = amount(small=200, full=4000)
    held = num_kept = num_built = 0
    for seeds in (range(tried)[start : start + 500] for start in range(0, tried, 500)):
        content = b"\n".join(mutated(schema, seed) for seed in seeds)
        path = tmp_path / f"rows{seeds[0]}.jsonl"
        path.write_bytes(content)
        fates = verdicts(path, schema, format="jsonl", partition_bytes=2**23)
        expected = [(i, line.strip(BLANK)) for i, line in enumerate(content.split(b"\n"), 1) if line.strip(BLANK)]
        assert [line for line, _ in fates] == [i for i, _ in expected]
        wrong = [
            (row, fate)
            for (_, row), (_, fate) in zip(expected, fates, strict=True)
            if not agrees(row, *(("kept", "") if isinstance(fate, Sample) else fate))
        ]
        assert not wrong, wrong[:3]
        for partition_bytes in (1, 3000):
            again = verdicts(path, schema, format="jsonl", partition_bytes=partition_bytes)
            assert numbered_alike(again) == numbered_alike(fates)

        cache = tmp_path / f"cache{seeds[0]}"
        ignored: list[str] = []
        for _ in range(2):  # what the first build asks about is left out of the second
            words = ["--set", f"sources=[{{path: {path}, schema: {schema}, ignore: {json.dumps(ignored)}}}]"]
            outcome = lab.run([*job.command(cache, *words, "--set", "pack.block_len=8192")], root=tmp_path)
            ignored = re.findall(r"--ignore '?([^' ]+)", outcome.told)
        assert outcome.code == 0, outcome.told
        manifest = read_manifest(cache)
        check_conservation(manifest)
        rejected = {line.line: line.code for line in read_rejected(cache, manifest) if line.document is None}
        codes = {line: fate[0] for line, fate in fates if not isinstance(fate, Sample)}
        of_images = {
            line for line, code in codes.items() if code.startswith("media_")
        }  # which this build does not read
        assert rejected.items() >= (codes | dict.fromkeys(of_images, "multimodal")).items()
        assert manifest.totals.kept == len(fates) - len(rejected)
        held += len(seeds)
        num_kept += manifest.totals.kept
        num_built += len(fates)
    assert tried // 20 < num_kept < num_built - tried // 4  # the changes neither spare nor spoil everything
    tally("generated rows", tried=tried, held=held)


def test_an_array_of_generated_rows_is_read_or_refused_by_name(tmp_path: Path, tally) -> None:
    """A row may break the array it stands in; then the file is refused. What is read is what the lines alone would be."""
    tried, refused, rows = amount(small=250, full=4000), 0, 0
    path = tmp_path / "rows.json"
    for seed in range(tried):
        schema = SCHEMAS[seed % len(SCHEMAS)]
        elements = [mutated(schema, 10**6 + 3 * seed + i) for i in range(3)]
        path.write_bytes(b"[" + b",".join(elements) + b"]")
        try:
            fates = verdicts(path, schema, format="json", partition_bytes=2**20)
        except InputError as error:
            assert str(path) in error.message and ("is not JSON" in error.message or "holds no rows" in error.message)
            refused += 1
            continue
        rows += len(fates)
        assert all(isinstance(fate, Sample) or fate[0] in CODES for _, fate in fates)
        try:
            value = json.loads(path.read_bytes(), parse_constant=refuse)
        except ValueError:
            continue
        assert len(fates) == len(value)
    assert 0 < refused < tried
    tally("arrays of generated rows", tried=tried, held=tried, note=f"{refused:,} refused, {rows:,} rows read")
