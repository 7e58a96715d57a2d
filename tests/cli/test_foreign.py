"""`verify --foreign` as people see it."""

import pytest
from audit.foreign.prepared import PROMPT, Row, Words, with_bos, write
from command_line import fields, run


@pytest.fixture(scope="module")
def words(starter, tmp_path_factory):
    return Words(with_bos(starter, tmp_path_factory.mktemp("tokenizer") / "folder"))


@pytest.fixture
def broken(words, tmp_path):
    """One row that trains its whole prompt, one that leaves out its stop token, one as it should be."""
    rows = [Row(words.conversation([("why is the sky blue? " * 9, "light is scattered " * 9)])) for _ in range(3)]
    for place in rows[0].places(PROMPT):
        rows[0].labels[place] = rows[0].ids[place]
    rows[1].labels[rows[1].answers()[0][1]] = -100
    return write(tmp_path / "rows", rows)


def test_verify_lists_findings_with_counts_an_excerpt_and_a_hint(broken, words, terminal):
    told = run("verify", "--foreign", broken, "--tokenizer", words.folder, exit_code=1)
    page = " ".join(told.stdout.split())
    assert "rows all 3, datasets: input_ids, labels" in page
    assert "error[prompt_trained]: the prompt is trained" in page
    found = fields("verify", "--foreign", broken, "--tokenizer", words.folder, exit_code=1)
    assert (found["schema"], found["command"], found["ok"]) == (1, "verify", False)
    assert found["error"]["code"] == "check_failed"
    assert [(f["code"], f["num_rows"]) for f in found["findings"]] == [("prompt_trained", 1), ("terminator_masked", 1)]
    assert found["findings"][1]["examples"][0]["text"].count("<|im_end|>") >= 1
    assert (found["rows_looked_at"], found["num_rows"]) == (3, 3)
    count = found["findings"][0]["count"]
    share = f"{100 * count / found['trained']:.1f} % of what is trained"
    assert f"tools say: {count} tokens in 1 of 3 rows; {share} row 0" in page
    assert "error[terminator_masked]:" in page and ": 1 answer in 1 of 3 rows" in page
    assert "row 1" in told.stdout and told.stdout.count("¦") == 4 and "hint: " in told.stdout
    assert "not checked: whether rows contain several conversations" not in page, "its template writes a BOS"
    assert "2 errors, 0 warnings, 0 notes (prompt_trained, terminator_masked)" in " ".join(told.stderr.split())
    assert all(len(line) <= 80 for line in told.stdout.splitlines()[1:]), "the first line is the path"
    assert "\x1b" not in told.stdout


def test_with_another_tokenizer_only_that_is_said(words, tmp_path):
    rows = [Row(words.conversation([("why is the sky blue?", "light is scattered")])) for _ in range(3)]
    for row in rows:
        row.ids = [token + words.vocab_size // 2 for token in row.ids]
        row.labels = list(row.ids)
    found = fields("verify", "--foreign", write(tmp_path / "rows", rows), "--tokenizer", words.folder, exit_code=1)
    assert [finding["code"] for finding in found["findings"]] == ["ids_outside", "not_checked"]
    assert "--tokenizer names another one" in found["findings"][0]["hint"]
    assert "most rows contain ids that this tokenizer does not have" in found["findings"][1]["message"]


def test_sample_and_full_say_how_many_rows(broken, words):
    asked = ("verify", "--foreign", broken, "--tokenizer", words.folder)
    for number, words_ in ((1, ("--sample", "1")), (3, ("--full",))):
        assert fields(*asked, *words_, exit_code=1)["rows_looked_at"] == number


def test_the_folder_one_is_in_and_one_that_holds_data_sets_are_names_too(broken, words, tmp_path, monkeypatch):
    monkeypatch.chdir(broken)
    asked = ("--tokenizer", words.folder)
    assert fields("verify", "--foreign", ".", *asked, exit_code=1)["num_rows"] == 3
    monkeypatch.chdir(broken.parent)
    for name in (".", broken.parent):
        told = run("verify", "--foreign", name, *asked, exit_code=3).stderr
        assert "hint: it contains data sets; name one of them: " in told
    (tmp_path / "empty" / "below").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "empty" / "below")
    assert "not something that an audit reads" in run("verify", "--foreign", "..", *asked, exit_code=3).stderr
