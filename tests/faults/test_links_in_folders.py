"""Links in a folder that somebody sent: of a tokenizer, a dataset, tables, a trainer's data. None that leads out is followed."""

import glob
import json
import os
import random
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from processes import run_forked

from packer.model.model import FOLDER_FILES
from packer.source.files import matches
from packer_cli.main import cli

SECRET = "the-secret-of-another-folder"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder of this machine that nobody named, with files that a dataset and a tokenizer could be read from."""
    folder = tmp_path / "outside"
    folder.mkdir()
    rows = json.dumps({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": SECRET}]})
    (folder / "chat.jsonl").write_text(rows + "\n")
    (folder / "secret.json").write_text(json.dumps({"eos_token_id": [0], "chat_template": SECRET, SECRET: {}}))
    return folder


@pytest.fixture
def received(starter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What somebody sent: a tokenizer with a recipe and data, in the current folder."""
    folder = Path(shutil.copytree(starter, tmp_path / "received"))
    monkeypatch.chdir(folder)
    return folder


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, words)


def replace(path: Path, target: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def refused(result: Result, path: str) -> None:
    assert result.exit_code == 3, result.output
    assert f"{path}: not read: a link leads out of this folder" in " ".join(result.output.split())
    assert SECRET not in result.output


COMMANDS = [
    ["preview", "data/chat.jsonl", "--tokenizer", "tokenizer"],
    ["preview", "--tokenizer", "tokenizer"],
    ["build", "-c", "recipe.yaml", "-o", "cache", "-j", "1"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("name", FOLDER_FILES)
def test_no_file_of_a_tokenizer_is_read_through_a_link_out_of_its_folder(
    name: str, command: list[str], received: Path, outside: Path
) -> None:
    replace(received / "tokenizer" / name, outside / "secret.json")
    refused(run(*command), f"tokenizer/{name}")
    assert not (received / "cache").exists()


def test_a_link_is_not_followed_where_its_path_is_longer_than_any_name_may_be(received: Path, outside: Path) -> None:
    """The kernel looks up link by link what is too long to be looked up at once."""
    folder, names = received / "tokenizer", ["d" * 200] * 20
    before = Path.cwd()
    for name in (folder, *names):
        os.chdir(name) if Path(name).is_dir() else (Path(name).mkdir(), os.chdir(name))
    Path("last").symlink_to(outside / "secret.json")
    os.chdir(before)
    (folder / "far").symlink_to("/".join(names))
    replace(folder / "chat_template.jinja", Path("far", "last"))
    assert SECRET in (folder / "chat_template.jinja").read_text()
    for command in COMMANDS:
        refused(run(*command), "tokenizer/chat_template.jinja")


def test_a_tokenizer_as_the_client_of_the_hub_keeps_it_is_read(received: Path) -> None:
    top = received / "models--org--name"
    (top / "snapshots" / "0").mkdir(parents=True)
    shutil.move(received / "tokenizer", top / "blobs")
    for path in (top / "blobs").iterdir():
        (top / "snapshots" / "0" / path.name).symlink_to(Path("..", "..", "blobs", path.name))
    shown = run("preview", "data/chat.jsonl", "--tokenizer", str(top / "snapshots" / "0"))
    assert shown.exit_code == 0, shown.output


@pytest.fixture
def data_set(received: Path) -> Path:
    datasets = pytest.importorskip("datasets", reason="DATASETS MISSING: tests/requirements.txt")
    rows = [{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}]
    made = datasets.Dataset.from_list(rows)
    datasets.DatasetDict({"train": made}).save_to_disk(str(received / "saved"))
    return received / "saved"


@pytest.mark.parametrize("command", [["preview"], ["build", "-o", "cache", "-j", "1"]], ids=" ".join)
@pytest.mark.parametrize("name", ["dataset_dict.json", "train", "train/state.json", "train/data-00000-of-00001.arrow"])
def test_no_part_of_a_dataset_is_read_through_a_link_out_of_its_folder(
    name: str, command: list[str], data_set: Path, outside: Path
) -> None:
    place = data_set / name
    place.rename(outside / "moved")
    place.symlink_to(outside / "moved")
    result = run(command[0], "saved", "--tokenizer", "tokenizer", *command[1:])
    assert result.exit_code == 3, result.output
    assert "a link leads out of this folder" in " ".join(result.output.split())
    assert not (data_set.parent / "cache").exists()


def test_no_table_of_a_folder_that_is_audited_is_read_through_a_link_out_of_it(received: Path, outside: Path) -> None:
    (received / "tables").mkdir()
    (received / "tables" / "a.parquet").symlink_to(outside / "chat.jsonl")
    refused(run("verify", "--foreign", "tables", "--tokenizer", "tokenizer"), "tables/a.parquet")


def test_no_dataset_info_is_read_through_a_link_out_of_the_folder_of_the_data(received: Path, outside: Path) -> None:
    (received / "data" / "dataset_info.json").symlink_to(outside / "secret.json")
    (received / "train.yaml").write_text("stage: sft\ndataset: a\nmodel_name_or_path: tokenizer\n")
    refused(run("init", "new", "--from", "train.yaml"), f"{received}/data/dataset_info.json")


@pytest.mark.parametrize("pattern", ["data/**/gone.jsonl", "data/" + "*/" * 40 + "gone.jsonl"])
def test_links_that_lead_in_circles_end_a_pattern(pattern: str, received: Path) -> None:
    for name in "abc":
        (received / "data" / name).symlink_to(".")
    (received / "axolotl.yaml").write_text(f"base_model: tokenizer\ndatasets: [{{path: '{pattern}', type: alpaca}}]\n")
    for command in (["preview", pattern, "--tokenizer", "tokenizer"], ["init", "new", "--from", "axolotl.yaml"]):
        ended = run_forked("from packer_cli.main import cli; cli()", *command)
        assert ended.returncode in (0, 2, 3), ended.stderr


def test_a_pattern_matches_what_it_matches_in_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In folders without links to folders; Python's own function is the oracle."""
    monkeypatch.chdir(tmp_path)
    draw = random.Random(0)
    names = ["a", "b", ".c", "ab", "[x]", "a.jsonl", "b.jsonl"]
    for _ in range(40):
        folder = Path(*draw.choices(names[:5], k=draw.randint(0, 3)))
        folder.mkdir(parents=True, exist_ok=True)
        (folder / draw.choice(names[5:])).touch()
    for _ in range(400):
        parts = draw.choices(["*", "**", "?", "a*", "[!a]*", ".*", "[[]x]", "..", *names], k=draw.randint(1, 4))
        pattern = os.path.join(*parts)  # noqa: PTH118 - Path drops what glob is to meet
        plain = pattern + "/*" * (parts[-1] == "**")  # for Python, a file is below itself
        for start in ("", f"{tmp_path}/"):
            expected = {match for match in glob.glob(start + plain, recursive=True) if Path(match).is_file()}  # noqa: PTH207
            found = [os.path.realpath(match) for match in matches(start + pattern) if match.is_file()]
            assert sorted(found) == sorted({*map(os.path.realpath, expected)}), pattern


def test_a_star_follows_a_link_to_a_folder_once(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "a.jsonl").write_text("")
    (tmp_path / "data" / "one").symlink_to(tmp_path / "far")
    (tmp_path / "data" / "two").symlink_to(tmp_path / "far")
    assert matches(f"{tmp_path}/data/*/*.jsonl") == [tmp_path / "data" / "one" / "a.jsonl"]
    assert matches(f"{tmp_path}/data/**/*.jsonl") == []
