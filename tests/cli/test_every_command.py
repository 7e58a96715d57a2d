"""What holds for all commands alike: errors have an exit code, a code, a message and a hint, and lines keep their width."""

import json
import shutil
from pathlib import Path

import pytest
import twins
from audit.foreign.prepared import PROMPT, Row, Words, with_bos, write
from chats import chat
from command_line import assert_refused, fields, run

from packer.pipeline.from_python import build
from packer.recipe.recipe import load_recipe
from packer.store.manifest import read_manifest
from packer_cli.output import cells

CHAT = chat("Hi 世界", "Hello " * 40)


@pytest.fixture(scope="module")
def places(starter, starter_cache, tmp_path_factory):
    """Names of files and folders that command lines take; none of them is written to."""
    top = tmp_path_factory.mktemp("places")
    (top / "rows.jsonl").write_text(f"{json.dumps(CHAT)}\nnot json\n")
    (top / "bad.jsonl").write_text(json.dumps({"messages": CHAT["messages"][:1]}) + "\n")
    (top / "empty").mkdir()
    words = Words(with_bos(starter, top / "words"))
    row = Row(words.conversation([("why is the sky blue? " * 9, "light is scattered " * 9)]))
    for place in row.places(PROMPT):
        row.labels[place] = row.ids[place]
    write(top / "foreign", [row])
    damaged = Path(shutil.copytree(starter_cache, top / "damaged"))
    (damaged / read_manifest(damaged).shards[0].path).write_bytes(b"")
    build(load_recipe(starter / "recipe.yaml", ["supervision.turns=last"]), top / "other", jobs=1, progress=None)
    return {
        "cache": starter_cache, "recipe": starter / "recipe.yaml", "other": top / "other", "damaged": damaged, "tokenizer": starter / "tokenizer",
        "rows": top / "rows.jsonl", "bad": top / "bad.jsonl", "missing": top / "missing", "empty": top / "empty",
        "foreign": top / "foreign", "words": words.folder, "huge": "9" * 5000,  # more digits than Python reads
        "announcing": twins.byte_level(top / "announcing", template=ANNOUNCING),
        "refused": twins.byte_level(top / "refused", template=twins.NO_TERMINATOR),
    }  # fmt: skip


ANNOUNCING = twins.CHATML.replace("'\\n' + (", "'\\n' + ('Answer: ' if message.role == 'assistant' else '') + (")


ERRORS = """
2 usage         frobnicate                                                      no command is called
2 usage         init {cache}                                                    expected an empty folder
2 recipe        preview                                                         no tokenizer
2 recipe        preview -c {cache}                                              recipe
2 recipe        preview {rows}                                                  no tokenizer
3 input         preview {rows} --tokenizer {missing}                            no such file or folder
3 input         preview {missing} --tokenizer {tokenizer}                       no such file
2 usage         preview {rows} --tokenizer {tokenizer} --row {rows}             expected FILE:N
2 usage         preview {rows} --tokenizer {tokenizer} --row {rows}:3           no row 3
2 usage         preview {rows} --tokenizer {tokenizer} --row other.jsonl:0      no source is
2 usage         preview {rows} --tokenizer {tokenizer} --row {rows}:0 --rejected  cannot go together
2 usage         preview --tokenizer {tokenizer} --row {rows}:0                  --row is of a SOURCE
2 usage         preview {rows} --tokenizer {tokenizer} -n 0                     invalid value
2 usage         preview --schema messages -c {missing}                          need a SOURCE
3 input         build {missing}.jsonl --tokenizer {tokenizer} -o {new}          no such file
2 recipe        build {rows} -o {new}                                           no tokenizer
2 recipe        build {rows} --tokenizer {tokenizer} -o {new} --set pack.blok_len=3  did you mean
3 nothing_kept  build {bad} --tokenizer {tokenizer} -o {new}                    nothing kept
2 usage         build {rows} --tokenizer {tokenizer} -o {cache}                 --force replaces it
2 usage         build {rows} --tokenizer {tokenizer} -o {rows}                  rows.jsonl
2 recipe        build -c {missing}.yaml -o {new}                                no such file
2 recipe        build -o {cache}                                                no sources
2 recipe        build -c {recipe} --set sources=[] -o {new}                     no sources
2 usage         build --frobnicate                                              no such option
3 input         inspect {missing}                                               is not a cache
2 usage         inspect {cache} --block 99999                                   no block 99999
2 usage         inspect {cache} --block 1 --doc 2                               cannot go together
2 usage         inspect {cache} --row chat.jsonl:{huge}                         expected FILE:N
2 usage         inspect {cache} --why chat.jsonl:1                              no such option
3 input         stats {missing}                                                 is not a cache
2 usage         verify                                                          missing argument 'CACHE'
3 input         verify {missing}                                                is not a cache
3 input         verify {empty}                                                  is not a cache
2 usage         verify {cache} --reencode                                       add --sources .
2 usage         verify {cache} --sample 12                                      --reencode
2 usage         verify {cache} --foreign {foreign}                              not both
2 usage         verify {cache} --tokenizer {words}                              go with --foreign
2 usage         verify --foreign {foreign} --expect 0                           --expect is about a cache
2 usage         verify --foreign {foreign} --full --sample 3                    name one of them
2 usage         verify --foreign {foreign}                                      --foreign needs --tokenizer
3 input         verify --foreign {missing} --tokenizer {words}                  no such file or folder
3 input         verify --foreign {empty} --tokenizer {words}                    is not something that an audit reads
3 input         verify --foreign {cache} --tokenizer {words}                    hint: packer verify
3 input         diff {missing} {cache}                                          is not a cache
3 input         diff {cache} {missing}                                          is not a cache
1 check_failed  diff {cache} {damaged}                                          damaged
2 usage         diff {cache}                                                    NEW
2 usage         export {cache} -o {new}                                         --to
2 usage         export {cache} --to trl -o {new}                                'trl' is not one of
2 usage         export {cache} --to datasets -o {empty}                         already exists
3 input         export {missing} --to datasets -o {new}                         is not a cache
2 usage         export {cache} --to datasets                                    -o
""".strip().splitlines()


@pytest.mark.parametrize("line", ERRORS, ids=lambda line: line[16:70].strip())
def test_an_error_has_an_exit_code_a_code_a_message_and_a_hint(line, places, tmp_path):
    exit_code, code, rest = line.split(maxsplit=2)
    command, said = (part.strip() for part in rest.split("  ", 1))
    words = command.format(**places, new=tmp_path / "new").split()
    assert_refused(said, *words, exit_code=int(exit_code))
    error = fields(*words, exit_code=int(exit_code))["error"]
    assert error["code"] == code and error["message"] and error["hint"]
    assert not (tmp_path / "new" / "manifest.json").exists()


PRINTED = {
    "stats {cache}": 0,
    "verify {cache} --full": 0,
    "verify {damaged} -v": 1,
    "verify --foreign {foreign} --tokenizer {words}": 1,
    "check {cache} --sources / --near": 0,
    "diff {cache} {other}": 1,
    "diff {cache} {other} -v": 1,
    "preview --tokenizer {refused}": 1,
    "preview --tokenizer {announcing}": 0,
    "preview {rows} --tokenizer {tokenizer}": 0,
    "inspect {cache} --ids": 0,
    "explain overlong": 0,
}


@pytest.mark.parametrize(("command", "columns"), [*((each, 80) for each in PRINTED), ("diff {cache} {other}", 120)])
def test_no_line_is_wider_than_the_terminal_but_for_paths_and_digests(command, columns, places, terminal):
    told = run(*command.format(**places).split(), exit_code=PRINTED[command], env={"COLUMNS": str(columns)}).stdout
    assert told.count("\n") > 2 and "\x1b" not in told
    lines = [line for line in told.splitlines() if "/" not in line and max(map(len, line.split()), default=0) < 60]
    assert max(sum(map(cells, line)) for line in lines) <= columns


@pytest.mark.parametrize(
    "command", ["preview --tokenizer {announcing}", "verify --foreign {foreign} --tokenizer {words}"]
)
@pytest.mark.parametrize("columns", [1, 4, 11])
def test_a_terminal_of_hardly_any_width_gets_every_word(command, columns, places, terminal):
    words = command.format(**places).split()
    code, widths = int(words[0] == "verify"), (columns, 2000)
    narrow, wide = (run(*words, exit_code=code, env={"COLUMNS": str(each)}).stdout for each in widths)
    told = [line for line in wide.splitlines() if line.lstrip().startswith(("error[", "warning[", "note[", "hint:"))]
    assert told and all(" ".join(line.split()) in " ".join(narrow.split()) for line in told)


def test_a_command_that_went_into_another_is_answered_with_it():
    assert "did you mean 'packer preview'?" in run("lint", "rows.jsonl", exit_code=2).stderr
