"""The list of formats: one entry and one module are all that a format takes."""

import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner
from export import readers
from preference_rows import built, pair

from packer.errors import UsageError
from packer.export.formats import FORMATS, Format
from packer.export.run import export
from packer_cli.main import cli

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_is_on_the_command_line_in_the_pages_and_has_a_writer(name):
    told = CliRunner().invoke(cli, ["export", "--help"]).output
    assert "".join(f"{name}: {FORMATS[name].help}".split()) in "".join(told.split())  # lines break at hyphens too
    assert f"--to {name}" in (DOCS / "how-to" / "export.md").read_text("utf-8")
    module = FORMATS[name].load()
    assert all(callable(getattr(module, function)) for function in ("write", "write_index", "notes"))


def test_a_name_that_is_no_format_is_refused_with_those_there_are(starter_cache, tmp_path):
    with pytest.raises(UsageError, match="no format 'parquet'") as caught:
        export(starter_cache, tmp_path / "out", to="parquet")
    assert caught.value.hint == "formats: " + ", ".join(FORMATS)
    result = CliRunner().invoke(cli, ["export", str(starter_cache), "--to", "parquet", "-o", str(tmp_path / "out")])
    assert result.exit_code == 2 and all(name in result.stderr for name in FORMATS)


def write_lines(files, rows, windows):
    """A line of JSON for each document."""
    with files.open(f"{rows.split}.jsonl") as file:
        for numbers in windows:
            found = rows.shards.locate(numbers)
            for ids, labels in zip(found.values("input_ids"), found.values("labels"), strict=True):
                row = {"input_ids": ids.tolist(), "labels": labels.tolist()}
                file.write(json.dumps(row).encode() + b"\n")
    return {"path": f"{rows.split}.jsonl"}


def test_one_module_and_one_entry_make_a_format_and_what_it_cannot_hold_is_refused(
    starter, starter_cache, tmp_path, monkeypatch
):
    module = ModuleType("packer.export.lines")
    module.write, module.write_index, module.notes = write_lines, lambda files, splits: None, lambda rows: None
    monkeypatch.setitem(sys.modules, "packer.export.lines", module)
    monkeypatch.setitem(FORMATS, "lines", Format(module="lines", help="lines of JSON"))
    found = export(starter_cache, tmp_path / "out", to="lines", split="train")
    rows = [json.loads(line) for line in (tmp_path / "out" / "train.jsonl").read_text().splitlines()]
    assert [(row["input_ids"], row["labels"]) for row in rows] == readers.cache_documents(starter_cache, "train")
    assert [file.path for file in found.files] == ["train.jsonl"]
    with pytest.raises(UsageError, match="lines has no place for blocks"):
        export(starter_cache, tmp_path / "blocks", to="lines", unit="blocks")
    rows = [pair(n) for n in range(3)]
    with pytest.raises(UsageError, match="no place for which answer was chosen") as caught:
        export(built(tmp_path / "pairs", rows, starter / "tokenizer"), tmp_path / "no", to="lines")
    assert caught.value.hint.endswith(": --to datasets")
    assert not (tmp_path / "no").exists()
    with pytest.raises(UsageError, match="no place for documents") as caught:
        export(starter_cache, tmp_path / "no", to="megatron-bridge", unit="documents")
    assert "--to datasets" in caught.value.hint and not (tmp_path / "no").exists()
