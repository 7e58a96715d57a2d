"""Credentials in a name, or in an address of the environment, stand in nothing that a command prints or writes."""

import json
import shutil
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

import packer
from packer.errors import PackerError
from packer.store import bucket as buckets
from packer.store.cache import Cache
from packer_cli.main import cli

SECRET = "S3cr3tValue0123456789abc"
FORMS = {
    "user": f"s3://AKIAX:{SECRET}/+x@bucket/folder/x.jsonl",
    "path": f"s3:/AKIAX:{SECRET}@bucket/folder/x.jsonl",
    "google": f"gs://user:{SECRET}@bucket/x.jsonl",
    "azure": f"az://container/x.jsonl?sv=2024&sig={SECRET}",
    "web": f"https://user:{SECRET}@host.example/x.jsonl",
    "signed": f"https://host.example/x.jsonl?X-Amz-Signature={SECRET}&part=2",
    "hub": f"hf://datasets/org/name/x.jsonl?token={SECRET}",
    "hub's token": f"hf://datasets/org/hf_{SECRET}/x.jsonl",
    "ray": f"ray://user:{SECRET}@host.example:10001",
}
"""Ways to write credentials into an address."""

Words = tuple[object, ...]


def commands(name: str, cache: Path, rows: Path, tokenizer: Path, out: Path) -> Iterator[Words]:
    """Every command, with the name wherever it takes one."""
    given = ("--tokenizer", tokenizer)
    for command in ("build", "preview"):
        to = ("-o", out / "new") if command == "build" else ()
        yield command, name, *given, *to
        yield command, rows, "--tokenizer", name, *to
        yield command, rows, *given, "--template", name, *to
        for key in (
            "sources.path",
            "tokenizer",
            "template.file",
            "sources.schema",
            "sources.columns.prompt",
            name,
            "x",
        ):
            yield command, rows, *given, "--set", f"{key}={name}", *to
        yield command, rows, *given, "--set", f"decontaminate={{benchmarks: [{{path: '{name}'}}]}}", *to
        yield command, "-c", name, *to
        yield command, "-c", rows.parent / "recipe.yaml", *to
    yield "build", rows, *given, "-o", name
    yield "build", "-o", name, "--repair"
    yield "build", rows, *given, "-o", out / "new", "--on", name
    for command in ("verify", "inspect", "stats", "check", "report", "export"):
        to = {"report": ("-o", out / "page.html"),
              "export": ("--to", "datasets", "-o", out / "saved")}.get(command, ())  # fmt: skip
        yield command, name, *to
        yield command, name, *to, "--json"
        yield command, cache, *to, name
        yield command, cache, *to, "--split", name
    yield "report", cache, "-o", name
    yield "export", cache, "--to", "datasets", "-o", name
    yield "verify", "--foreign", name
    yield "inspect", cache, "--row", f"{name}:0"
    yield "diff", cache, name
    yield "diff", name, cache
    yield "init", name
    yield "init", out / "init", "--from", rows.parent / "axolotl.yaml"
    yield "init", out / "init2", "--from", name
    yield "explain", name
    yield name, "x"
    yield "stats", f"--{name}"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No request is repeated, and what packer keeps of others is kept here."""
    monkeypatch.setenv("PACKER_CACHE_DIR", str(tmp_path / "kept"))
    monkeypatch.setattr(buckets, "_RETRIES", {"max_retries": 0})
    monkeypatch.setattr(buckets, "_REPEATED_S", 0)
    buckets._opened.cache_clear()


def run(*words: object) -> tuple[str, int]:
    done = CliRunner(env={"COLUMNS": "80"}).invoke(cli, [*map(str, words)])
    return done.stdout + done.stderr, done.exit_code


def assert_unwritten(folder: Path) -> int:
    """No file below a folder has the secret in its name or bytes; returns how many there are."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    for path in folder.rglob("*"):
        assert SECRET not in str(path)
    for path in files:
        assert SECRET.encode() not in path.read_bytes(), path
    return len(files)


@pytest.mark.parametrize("form", FORMS)
def test_every_command_refuses_them_at_once(form: str, tmp_path: Path, quick: None) -> None:
    for words in commands(FORMS[form], tmp_path / "c", tmp_path / "r", tmp_path / "t", tmp_path / "out"):
        if any(FORMS[form] in str(word) for word in words):
            text, code = run(*words)
            assert SECRET not in text and "holds credentials" in text.replace("\n", " ") and code == 2, (words, text)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("form", FORMS)
def test_credentials_in_a_name_stand_in_nothing_that_a_command_prints_or_writes(
    form: str, starter: Path, starter_cache: Path, tmp_path: Path, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also behind the door of the command line: through a recipe, a configuration, or Python."""
    name, out, given = FORMS[form], tmp_path / "out", tmp_path / "given"
    for folder in (out, given):
        folder.mkdir()
    cache, rows = Path(shutil.copytree(starter_cache, out / "cache")), given / "rows.jsonl"
    rows.write_text('{"prompt": "a b", "completion": " c d"}\n' * 3, "utf-8")
    (given / "recipe.yaml").write_text(json.dumps({"sources": [{"path": name}], "tokenizer": name}), "utf-8")
    config = {"datasets": [{"path": name, "type": "chat_template"}], "base_model": name, "chat_template_jinja": name}
    (given / "axolotl.yaml").write_text(json.dumps(config), "utf-8")
    monkeypatch.setattr("packer_cli.main.scheme_with_credentials", lambda _: None)
    monkeypatch.chdir(tmp_path)
    count = 0
    for words in commands(name, cache, rows, starter / "tokenizer", out):
        if "--foreign" in words:
            continue
        text, code = run(*words)
        assert SECRET not in text, (words, text)
        assert code in (0, 1, 2, 3, 5), (words, text)
        count += 1
    assert count > 60
    assert assert_unwritten(out) > 5
    if (tmp_path / "kept").exists():
        assert_unwritten(tmp_path / "kept")
    assert not [path for path in tmp_path.rglob("*") if SECRET in str(path)]
    tokenizer, samples = starter / "tokenizer", [{"prompt": "a", "completion": "b"}]
    for call in (
        lambda: packer.build(name, tmp_path / "x", tokenizer=tokenizer),
        lambda: packer.build(samples, tmp_path / "x", tokenizer=name),
        lambda: packer.build(samples, name, tokenizer=tokenizer),
        lambda: Cache.open(name),
    ):
        with pytest.raises(PackerError) as refused:
            call()
        assert SECRET not in "".join(traceback.format_exception(refused.value))
    assert_unwritten(tmp_path / "x")


@pytest.mark.parametrize("address", [f"http://user:{SECRET}@127.0.0.1:9", f"user:{SECRET}@host:9000", f"http://user:{SECRET}@host:x",
                                     f"http://user:{SECRET}@127.0.0.1:9?token={SECRET}"])  # fmt: skip
def test_credentials_in_the_address_of_a_store_stand_in_no_error(
    address: str, starter: Path, tmp_path: Path, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor in a traceback, which shows what caused an error."""
    pytest.importorskip("obstore", reason="OBSTORE MISSING: tests/requirements.txt")
    for variable in ("AWS_ENDPOINT_URL", "AZURE_STORAGE_ENDPOINT"):
        monkeypatch.setenv(variable, address)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAX")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "c2VjcmV0")
    rows = starter / "data" / "chat.jsonl"
    for url in ("s3://bucket/cache", "az://container/cache"):
        for words in (("verify", url), ("stats", url, "--json"), ("build", f"{url}/*.jsonl", "--tokenizer", starter / "tokenizer", "-o", tmp_path / "x"),
                      ("build", rows, "--tokenizer", starter / "tokenizer", "-o", url)):  # fmt: skip
            text, code = run(*words)
            assert code in (2, 5) and SECRET not in text, (words, text)
        with pytest.raises(PackerError) as refused:
            Cache.open(url)
        assert SECRET not in "".join(traceback.format_exception(refused.value))
    assert_unwritten(tmp_path)


def test_credentials_in_the_address_of_the_hub_stand_in_no_error(
    starter: Path, tmp_path: Path, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import constants

    endpoint = f"http://user:{SECRET}@127.0.0.1:9"
    monkeypatch.setattr(constants, "ENDPOINT", endpoint)
    monkeypatch.setattr("huggingface_hub.hf_api.constants.ENDPOINT", endpoint)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    rows = starter / "data" / "chat.jsonl"
    told = []
    for words in (("build", rows, "--tokenizer", "org/name", "-o", tmp_path / "x"), ("stats", "hf://datasets/org/name"),
                  ("preview", rows, "--tokenizer", "org/name", "--json")):  # fmt: skip
        text, code = run(*words)
        assert code == 3 and SECRET not in text, (words, text)
        told.append(text)
    assert any("http://***@127.0.0.1:9" in text for text in told)
