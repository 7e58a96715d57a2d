"""`packer export` as people see it."""

import json

import pytest
from click.testing import CliRunner

from packer.store.cache import Cache
from packer_cli.main import cli


def run(*arguments, exit_code=0):
    result = CliRunner(env={"COLUMNS": "80"}).invoke(cli, [str(argument) for argument in arguments])
    assert result.exit_code == exit_code, result.output
    return result


def test_it_tells_rows_files_and_what_the_trainer_does_otherwise(starter_cache, tmp_path):
    told = run("export", starter_cache, "--to", "megatron", "--separate-mask", "-o", tmp_path / "out", "-v").stdout
    assert told.startswith(f"exported documents to {tmp_path / 'out'} in ")
    assert "train_loss_mask_document.idx" in told
    assert "note: Megatron's own GPTDataset does not read the mask, and trains every token" in " ".join(told.split())
    assert f"made from    {Cache.open(starter_cache).fingerprint}" in told
    assert all(len(line) <= 80 for line in told.splitlines()[1:]), "the first line has the path"
    assert run("export", starter_cache, "--to", "mds", "-o", tmp_path / "quiet", "-q").stdout == ""


def test_json_has_splits_and_files(starter_cache, tmp_path):
    arguments = (
        "export",
        starter_cache,
        "--to",
        "datasets",
        "--blocks",
        "--split",
        "eval",
        "-o",
        tmp_path / "out",
        "--json",
    )
    found = json.loads(run(*arguments).stdout)
    assert (found["schema"], found["command"], found["to"], found["unit"]) == (1, "export", "datasets", "blocks")
    assert [entry["split"] for entry in found["splits"]] == ["eval"]
    assert sorted(file["path"] for file in found["files"]) == [
        "data-00000-of-00001.arrow", "dataset_info.json", "state.json"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "exit_code", "words"),
    [
        (("{cache}", "--to", "megatron", "-o", "{new}"), 2, "--separate-mask writes the mask"),
        (("{cache}", "--to", "mds", "--blocks", "-o", "{new}"), 2, "takes documents"),
        (("{cache}", "--to", "olmo", "-o", "{taken}"), 2, "is no export"),
        (("{missing}", "--to", "olmo", "-o", "{new}"), 3, "is not a cache"),
        (("{cache}", "--to", "parquet", "-o", "{new}"), 2, "parquet"),
        (("{cache}", "--to", "olmo"), 2, "-o"),
    ],
)
def test_every_error_has_its_exit_code_a_message_and_a_hint(arguments, exit_code, words, starter_cache, tmp_path):
    (tmp_path / "taken").mkdir()
    places = {"cache": starter_cache, "new": tmp_path / "new", "taken": tmp_path / "taken", "missing": tmp_path / "no"}
    told = run("export", *(argument.format(**places) for argument in arguments), exit_code=exit_code)
    assert told.stdout == "" and words in told.stderr and "\n\nhint: " in told.stderr
    assert not (tmp_path / "new").exists()
