"""`packer export` as people see it."""

import pytest
from command_line import fields, run

from packer.store.cache import Cache


def test_it_reports_rows_files_and_what_the_trainer_does_otherwise(starter_cache, tmp_path, terminal):
    told = run("export", starter_cache, "--to", "datasets", "--blocks", "-o", tmp_path / "out", "-v").stdout
    assert told.startswith(f"exported blocks to {tmp_path / 'out'} in ")
    assert "dataset_dict.json" in told
    assert "note: blocks keep documents apart only if the trainer reads" in " ".join(told.split())
    assert f"made from    {Cache.open(starter_cache).fingerprint}" in told
    assert all(len(line) <= 80 for line in told.splitlines()[1:]), "the first line has the path"
    assert run("export", starter_cache, "--to", "datasets", "-o", tmp_path / "quiet", "-q").stdout == ""


def test_json_has_splits_and_files(starter_cache, tmp_path):
    found = fields("export", starter_cache, "--to", "datasets", "--blocks", "--split", "eval", "-o", tmp_path / "out")
    assert (found["command"], found["to"], found["unit"]) == ("export", "datasets", "blocks")
    assert [entry["split"] for entry in found["splits"]] == ["eval"]
    assert sorted(file["path"] for file in found["files"]) == [
        "data-00000-of-00001.arrow", "dataset_info.json", "state.json"
    ]  # fmt: skip


URLS = (
    "s3://b/out",
    "S3://b/out",
    "s3a://b/out",
    "oci://b/out",
    "https://host/out",
    "file:///tmp/out",
    "hf://datasets/a/b",
)


@pytest.mark.parametrize("url", URLS)
def test_nothing_is_written_into_a_folder_that_a_url_looks_like(url, starter_cache, starter, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scheme, _, _ = url.partition("://")

    def assert_refused(words, *command, exit_code=2):
        told = " ".join(run(*command, exit_code=exit_code).stderr.split())
        assert words in told and " hint: " in told

    local = f"packer does not write this to {scheme}://, only to a path of this machine"
    assert_refused(local, "export", starter_cache, "--to", "datasets", "-o", url)
    assert_refused(local, "report", starter_cache, "-o", f"{url}.html")
    assert_refused(local, "init", url)
    if scheme != "s3":
        cache = f"packer does not write to {scheme}://, only to folders and buckets (s3://, gs://, az://)"
        assert_refused(cache, "build", "-c", starter / "recipe.yaml", "-o", url)
    if scheme not in {"s3", "hf"}:
        read = f"packer does not read {scheme}://, only files, buckets"
        command = ("build", f"{url}.jsonl", "--tokenizer", starter / "tokenizer", "-o", "c")
        assert_refused(read, *command, exit_code=3)
    assert not [*tmp_path.iterdir()]
