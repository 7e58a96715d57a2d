"""A Hub on this machine, for the tests of what is fetched from one."""

import pytest
from small_hub import SmallHub, files_of
from train_starter_tokenizer import FILES


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A Hub with a tokenizer and a data set; the client knows no other and has an empty cache."""
    from huggingface_hub import constants

    hub = SmallHub()
    hub.commit("model", "tiny/chat", {**files_of(FILES / "tokenizer"), "model.safetensors": b"weights", "x.txt": b""})
    chats = (FILES / "data" / "chat.jsonl").read_bytes().splitlines(keepends=True)
    files = {"data/a.jsonl": b"".join(chats[:4]), "data/b.jsonl": b"".join(chats[4:8]), "data/test/c.jsonl": chats[9]}
    hub.commit("dataset", "tiny/talk", {**files, "README.md": b"About."})
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)  # a protocol of its own, behind the same call
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
    monkeypatch.chdir(tmp_path)
    with hub.serving() as address:
        resolved = constants.HUGGINGFACE_CO_URL_TEMPLATE.replace(constants.ENDPOINT, address)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", resolved)
        monkeypatch.setattr("huggingface_hub.file_download.HUGGINGFACE_CO_URL_TEMPLATE", resolved, raising=False)
        monkeypatch.setattr(constants, "ENDPOINT", address)
        yield hub
