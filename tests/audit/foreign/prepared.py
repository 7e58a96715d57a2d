"""Conversations as ids whose every token is known to be prompt, header, answer or stop: what defects are planted in."""

import json
import shutil
from itertools import pairwise

import pyarrow as pa
from tokenizers import AddedToken, Tokenizer

PROMPT, HEADER, ANSWER, STOP, NEWLINE, BOS = "prompt", "header", "answer", "stop", "newline", "bos"


def with_bos(starter, folder):
    """The starter tokenizer with a BOS that its template writes first, and a pad token that is no stop token."""
    shutil.copytree(starter / "tokenizer", folder)
    backend = Tokenizer.from_file(str(folder / "tokenizer.json"))
    backend.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in ("<s>", "<pad>")])
    backend.save(str(folder / "tokenizer.json"))
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(config | {"bos_token": "<s>", "pad_token": "<pad>"}))
    template = (folder / "chat_template.jinja").read_text()
    (folder / "chat_template.jinja").write_text("{{- bos_token -}}\n" + template)
    return folder


class Words:
    """Spells conversations in ids of one tokenizer."""

    def __init__(self, folder):
        self.backend = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.folder = folder
        self.bos, self.pad = (self.backend.token_to_id(text) for text in ("<s>", "<pad>"))
        self.stop = self.backend.token_to_id("<|im_end|>")
        self.vocab_size = self.backend.get_vocab_size(with_added_tokens=True)

    def ids(self, text):
        return self.backend.encode(text, add_special_tokens=False).ids

    def conversation(self, pairs):
        """(kind, id) of every token of a chat of questions and answers."""
        tokens = [(BOS, self.bos)]
        for question, answer in pairs:
            tokens += [(PROMPT, i) for i in self.ids(f"<|im_start|>user\n{question}<|im_end|>\n")]
            tokens += [(HEADER, i) for i in self.ids("<|im_start|>assistant")] + [(NEWLINE, i) for i in self.ids("\n")]
            tokens += [(ANSWER, i) for i in self.ids(answer)] + [(STOP, self.stop)]
            tokens += [(NEWLINE, i) for i in self.ids("\n")]
        return tokens


class Row:
    """One row of tokens with what it trains; columns are made of it at the end."""

    def __init__(self, *conversations):
        self.kinds = [kind for tokens in conversations for kind, _ in tokens]
        self.ids = [i for tokens in conversations for _, i in tokens]
        self.labels = [i if kind in (ANSWER, STOP) else -100 for kind, i in zip(self.kinds, self.ids, strict=True)]
        self.seq_lengths = [len(tokens) for tokens in conversations]
        self.mask = [1] * len(self.ids)

    def places(self, *kinds):
        return [place for place, kind in enumerate(self.kinds) if kind in kinds]

    def answers(self):
        """(first token, place of the stop token) of every answer."""
        stops = self.places(STOP)
        return [(max(p for p in self.places(NEWLINE) if p < stop) + 1, stop) for stop in stops]

    def starts(self):
        """Where each conversation begins."""
        ends = [0]
        for length in self.seq_lengths:
            ends.append(ends[-1] + length)
        return ends[:-1]

    def positions(self):
        ends = [*self.starts(), len(self.ids)]
        return [place for start, end in pairwise(ends) for place in range(end - start)]


def write(folder, rows, **columns):
    """A save_to_disk folder by hand: input_ids, labels and whatever columns are given as lists of lists."""
    folder.mkdir(parents=True)
    columns = {"input_ids": [row.ids for row in rows], "labels": [row.labels for row in rows]} | columns
    table = pa.table({name: pa.array(v, pa.list_(pa.int64())) for name, v in columns.items() if v is not None})
    with pa.ipc.new_stream(folder / "data-00000-of-00001.arrow", table.schema) as writer:
        writer.write_table(table)
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}))
    (folder / "dataset_info.json").write_text("{}")
    return folder
