"""A report as its HTML says it, read with the standard library: no line of the code that wrote it."""

import base64
import hashlib
import json
import zlib
from html.parser import HTMLParser


class Page(HTMLParser):
    """Elements, attributes and texts of a page, and the tokens it holds."""

    def __init__(self, content: bytes) -> None:
        super().__init__()
        self.elements = []  # (tag, attributes)
        self.texts = []  # (tag, text)
        self._open = []
        self.feed(content.decode())
        self.close()

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        self._open.append(tag)

    def handle_data(self, data):
        self.texts.append((self._open[-1] if self._open else "", data))

    def handle_endtag(self, tag):
        while self._open and self._open.pop() != tag:
            pass

    def of(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]

    def text(self, between=""):
        """Everything a person reads, with this between elements."""
        return between.join(text for tag, text in self.texts if tag not in ("script", "style"))

    def policy(self):
        (content,) = (each["content"] for each in self.of("meta") if each.get("http-equiv"))
        return dict(directive.split(" ", 1) for directive in content.split("; "))

    def hashes(self):
        """What a browser computes of the page's own scripts and style, as its policy names them."""
        texts = [text for tag, text in self.texts if tag == "script"]
        kept = texts[len(self._data()) :]
        return [
            " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in own)
            for own in (kept, [text for tag, text in self.texts if tag == "style"])
        ]

    def _data(self):
        """The scripts that hold tokens; they stand before those that run."""
        return [attributes for attributes in self.of("script") if "type" in attributes]

    def items(self):
        """Each item with its tokens: (key, item, [(id, text)])."""
        packed = [text for tag, text in self.texts if tag == "script"][: len(self._data())]
        return [(item["key"], item, tokens) for item, tokens in read_items(*packed)] if packed else []


def read_items(table, items):
    """Items and their tokens, (id, text) each."""
    tokens = _inflated(table)
    for item in _inflated(items):
        yield item, [(tokens["ids"][place], tokens["texts"][place]) for place in item["tokens"]]


def _inflated(text):
    return json.loads(zlib.decompress(base64.b64decode(text), -15))
