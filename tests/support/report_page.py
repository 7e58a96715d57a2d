"""A report as its HTML says it, read with the standard library: no line of the code that wrote it."""

import base64
import hashlib
import json
import struct
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

    def text(self):
        """Everything a person reads."""
        return "".join(text for tag, text in self.texts if tag not in ("script", "style"))

    def policy(self):
        (content,) = (each["content"] for each in self.of("meta") if each.get("http-equiv"))
        return dict(directive.split(" ", 1) for directive in content.split("; "))

    def hashes(self):
        """What a browser computes of the page's own script and style."""
        script = [text for tag, text in self.texts if tag == "script"][-1]
        (style,) = (text for tag, text in self.texts if tag == "style")
        return [
            f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in (script, style)
        ]

    def items(self):
        """Each item with its tokens: (key, item, [(id, text)])."""
        keys = [attributes["data-key"] for attributes in self.of("script") if "data-key" in attributes]
        if not keys:
            return []
        table, *streams = [text for tag, text in self.texts if tag == "script"][:-1]
        return [(key, *read_stream(table, stream)) for key, stream in zip(keys, streams, strict=True)]


def read_stream(table, stream):
    """The item and its tokens, (id, text) each."""
    tokens, content = json.loads(_inflated(table)), _inflated(stream)
    (size,) = struct.unpack_from("<I", content)
    item = json.loads(content[4 : 4 + size])
    width = "H" if len(tokens["ids"]) <= 2**16 else "I"
    places = struct.unpack(f"<{item['num_tokens']}{width}", content[4 + size :])
    return item, [(tokens["ids"][place], tokens["texts"][place]) for place in places]


def _inflated(text):
    return zlib.decompress(base64.b64decode(text), -15)
