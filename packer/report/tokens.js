"use strict";
// The token view. Everything else on the page works without it.
(() => {
  const CHUNK = 512; // tokens that are drawn at once, when they come into sight
  const MOST_HITS = 200;
  // Characters that are invisible or change the text direction, except newlines and tabs.
  const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff\ufff9-\ufffd]|[\u{e0000}-\u{e007f}]|[\ud800-\udfff]/gu;
  const KINDS = { t: "trained", m: "context", p: "padding" };
  const find = (id) => document.getElementById(id);
  const grouped = new Intl.NumberFormat("en-US");

  function make(tag, className, text) {
    const element = document.createElement(tag);
    if (className) element.className = className;
    if (text !== undefined) element.textContent = text;
    return element;
  }

  const named = (sign) => `U+${sign.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;

  // Text of a cache, with invisible characters written out.
  function show(parent, text) {
    for (const part of text.split(/(\n|\t)/)) {
      if (part === "\n" || part === "\t") {
        const sign = make("span", "sign", part === "\n" ? "↵" : "→");
        sign.setAttribute("aria-hidden", "true");
        parent.append(sign, part);
        continue;
      }
      let from = 0;
      for (const match of part.matchAll(UNSEEN)) {
        parent.append(part.slice(from, match.index));
        parent.append(make("span", "unseen", named(match[0])));
        from = match.index + match[0].length;
      }
      parent.append(part.slice(from));
    }
    return parent;
  }

  // Reading: see packer/report/tokens.py for the format.

  async function inflate(base64) {
    const text = atob(base64), bytes = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
    return new Response(stream).json();
  }

  // The items of the page, by key.
  async function unpack(packedTable, packedItems) {
    const table = await inflate(packedTable), items = await inflate(packedItems);
    table.control = new Set(table.control);
    return new Map(items.map((item) => [item.key, { item, table, places: item.tokens }]));
  }

  const held = unpack(find("table").textContent, find("items").textContent);

  async function open(key) {
    const found = (await held).get(key);
    if (!found) throw new Error("This page does not hold it.");
    return found;
  }

  function spansOf({ item }) {
    const spans = [];
    for (const owner of item.documents) {
      let at = owner.at;
      for (const [kind, length, message] of owner.spans) {
        spans.push({ kind, message, start: at, end: (at += length), owner });
      }
    }
    return spans;
  }

  // Find the last entry of a list, sorted by `start`, that begins at or before a token.
  function lastFrom(list, token, start = (entry) => entry.start) {
    let low = 0, high = list.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (start(list[middle]) <= token) low = middle; else high = middle - 1;
    }
    return list[low];
  }

  // Drawing.

  const text = find("text"), details = find("details"), pick = find("pick"), hits = find("hits");
  let shown = null, current = -1, marked = new Set();
  const watcher = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) fill(entry.target);
  }, { rootMargin: "1200px" });

  const plural = (count, word) => `${grouped.format(count)} ${word}${count === 1 ? "" : "s"}`;

  function list({ key, kind, title, note }) {
    pick.add(new Option(`${title}${kind === "doc" && note ? ` · ${note}` : ""}`.replace(UNSEEN, named), key));
  }

  function listed(images) {
    const list = make("ul", "images");
    for (const { width, height, tokens, jpeg, unread } of images) {
      const entry = make("li"), about = `${width} x ${height}, ${plural(tokens, "token")}`;
      if (jpeg) {
        const image = make("img");
        image.src = `data:image/jpeg;base64,${jpeg}`;
        image.alt = `image ${about}`;
        entry.append(image);
      }
      entry.append(make("span", "", unread ? `${about}, not shown: its file was not read` : about));
      list.append(entry);
    }
    return list;
  }

  async function display(key, token = -1) {
    let found;
    try {
      found = await open(key);
    } catch (error) {
      find("about").textContent = error.message;
      return;
    }
    shown = found;
    shown.spans ??= spansOf(shown);
    current = -1;
    const { item, places, table } = shown;
    watcher.disconnect();
    text.replaceChildren();
    item.documents.forEach((owner, number) => {
      const section = make("section", "document");
      section.setAttribute("aria-label", `document ${number + 1} of ${item.documents.length}`);
      const part = owner.length < owner.document_length
        ? ` · tokens ${grouped.format(owner.piece_start)} to ${grouped.format(owner.piece_start + owner.length - 1)} of ${grouped.format(owner.document_length)}` : "";
      section.append(show(make("p"), `${owner.source} row ${grouped.format(owner.row)}${owner.side ? ` · ${owner.side}` : ""} · ${plural(owner.length, "token")}, ${grouped.format(owner.num_trained)} trained${part}`));
      if (owner.images.length) section.append(listed(owner.images));
      const end = number + 1 < item.documents.length ? item.documents[number + 1].at : item.num_tokens;
      for (let from = owner.at; from < end;) {
        // Extend a chunk to the end of a line if one is near: chunks are block elements, which break lines.
        let to = Math.min(from + CHUNK, end);
        const near = Math.min(to + CHUNK, end);
        while (to < near && !table.texts[places[to - 1]].endsWith("\n")) to++;
        const chunk = make("div", "chunk");
        Object.assign(chunk.dataset, { from, to });
        section.append(chunk);
        watcher.observe(chunk);
        from = to;
      }
      text.append(section);
    });
    const padding = item.num_padding ? `, ${grouped.format(item.num_padding)} padding` : "";
    const left = item.documents.length ? ` · ${plural(item.documents.length, "document")}, ${plural(item.num_tokens, "token")}, ${grouped.format(item.num_trained)} trained${padding}` : "";
    find("about").replaceChildren(make("strong", "", item.title), left, item.note ? ` · ${item.note}` : "");
    pick.value = key;
    if (token >= 0) choose(token, true);
    else details.replaceChildren(make("p", "soft", "Choose a token to see its id, label, position, document and row."));
  }

  function fill(chunk) {
    if (chunk.hasChildNodes()) return;
    watcher.unobserve(chunk);
    const { table, places, spans } = shown;
    const parts = document.createDocumentFragment();
    let span = null;
    for (let i = +chunk.dataset.from; i < +chunk.dataset.to; i++) {
      if (!span || i >= span.end) {
        span = lastFrom(spans, i);
        if (span.kind === "t") parts.append(make("span", "hidden", ` [trained${span.message === null ? "" : `, message ${span.message}`}] `));
        else if (i === span.start && i > span.owner.at) parts.append(make("span", "hidden", ` [${KINDS[span.kind]}] `));
      }
      const token = make("span", "token");
      if (span.kind === "t") token.classList.add("trained");
      else if (span.kind !== "m") token.classList.add("other");
      if (table.control.has(places[i])) token.classList.add("control");
      if (marked.has(i)) token.classList.add("hit");
      token.dataset.token = i;
      const own = table.texts[places[i]];
      if (own) show(token, own); else token.append(make("span", "unseen", "…"));
      parts.append(token);
    }
    chunk.append(parts);
  }

  function choose(token, scroll = false) {
    token = Math.max(0, Math.min(shown.item.num_tokens - 1, token));
    text.querySelector(".current")?.classList.remove("current");
    const chunk = Array.from(text.querySelectorAll(".chunk")).find((c) => +c.dataset.from <= token && token < +c.dataset.to);
    if (!chunk) return;
    fill(chunk);
    current = token;
    const element = chunk.querySelector(`[data-token="${token}"]`);
    element.classList.add("current");
    if (scroll) element.scrollIntoView({ block: "center" });
    describe(token);
    history.replaceState(null, "", `#${shown.item.key}&token=${token}`);
  }

  function describe(token) {
    const { table, places } = shown, place = places[token], id = table.ids[place];
    const span = lastFrom(shown.spans, token), owner = span.owner;
    const list = make("dl");
    const line = (name, value) => list.append(make("dt", "", name), show(make("dd"), String(value)));
    line("text", JSON.stringify(table.texts[place]));
    line("id", id);
    line("label", span.kind === "t" ? id : -100);
    line("is", KINDS[span.kind] + (table.control.has(place) ? ", control token" : ""));
    if (span.message !== null) line("message", span.message);
    const place_in_piece = token - owner.at;
    line("position", place_in_piece + owner.position);
    if (owner.length < owner.document_length && place_in_piece < owner.length) line("token", `${grouped.format(place_in_piece + owner.piece_start)} of its document, from 0`);
    if (shown.item.kind === "block") line("slot", token);
    line("file", owner.source);
    line("row", owner.row);
    if (owner.sample_id !== null) line("row's id", owner.sample_id);
    if (owner.side !== null) line("side", owner.side);
    line("split", owner.split);
    line("document", owner.doc_id);
    details.replaceChildren(list);
  }

  // Search.

  // The text of an item, cached.
  function textOf(found) {
    if (found.whole === undefined) {
      const { texts } = found.table;
      found.whole = "";
      for (const place of found.places) found.whole += texts[place];
    }
    return found.whole;
  }

  // Where each token begins in the text.
  function startsOf(found) {
    if (!found.starts) {
      const { texts } = found.table;
      found.starts = new Uint32Array(found.places.length);
      let at = 0;
      found.places.forEach((place, token) => { found.starts[token] = at; at += texts[place].length; });
    }
    return found.starts;
  }

  async function search(query) {
    marked = new Set();
    hits.replaceChildren();
    if (!query) return;
    const id = /^id:(\d+)$/.exec(query);
    const pattern = id ? null : new RegExp(query.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), "giu");
    const list = make("ol");
    let total = 0;
    for (const found of await Promise.all(Array.from(pick.options, (option) => open(option.value)))) {
      const add = (token, before, match, after) => {
        total++;
        if (list.children.length >= MOST_HITS) return;
        const button = make("button");
        button.type = "button";
        button.append(make("b", "", `${found.item.title}, token ${grouped.format(token)}`));
        button.append(show(make("span"), before), show(make("mark"), match), show(make("span"), after));
        button.addEventListener("click", () => { marked = new Set([token]); display(found.item.key, token); });
        const entry = make("li");
        entry.append(button);
        list.append(entry);
      };
      if (id) {
        found.places.forEach((place, token) => {
          if (found.table.ids[place] === +id[1]) add(token, "", found.table.texts[place], "");
        });
        continue;
      }
      const whole = textOf(found), line = (part) => part.replace(/\s+/g, " ");
      for (const match of whole.matchAll(pattern)) {
        const end = match.index + match[0].length;
        // Of equal starts, choose the last: a token that ends within a character has no text.
        const starts = startsOf(found);
        let token = 0, high = starts.length - 1;
        while (token < high) {
          const middle = (token + high + 1) >> 1;
          if (starts[middle] <= match.index) token = middle; else high = middle - 1;
        }
        add(token, line(whole.slice(Math.max(0, match.index - 30), match.index)), line(match[0]), line(whole.slice(end, end + 50)));
      }
    }
    const more = total > MOST_HITS ? `, the first ${MOST_HITS} are listed` : "";
    hits.append(make("p", "soft", `${total ? grouped.format(total) : "None"} found${more}`));
    if (total) {
      list.tabIndex = 0;
      list.setAttribute("aria-label", "Found");
      hits.append(list);
    }
  }

  // Events.

  function go(key) {
    history.replaceState(null, "", `#${key}`);
    return display(key);
  }

  // Go to the previous or next item in the list.
  function step(by) {
    const option = pick.options[pick.selectedIndex + by];
    if (option) go(option.value);
  }

  // Go to the beginning of the first, or the last, span of trained tokens that is wanted.
  function toTrained(wanted, place = 0) {
    const span = shown?.spans.filter((each) => each.kind === "t" && wanted(each)).at(place);
    if (span) choose(span.start, true);
  }

  function follow() {
    const link = /^(.*?)(?:&token=(\d+))?$/.exec(location.hash.slice(1));
    if (!/^(block|row|doc)=/.test(link[1])) return false;
    find("tokens").scrollIntoView();
    display(link[1], link[2] === undefined ? -1 : +link[2]);
    return true;
  }

  pick.addEventListener("change", () => go(pick.value));
  find("previous").addEventListener("click", () => step(-1));
  find("next").addEventListener("click", () => step(1));
  find("edges").addEventListener("change", (event) => text.classList.toggle("edges", event.target.checked));
  find("search").addEventListener("submit", (event) => { event.preventDefault(); search(find("query").value); });
  // pointermove, not pointerover: ignore text that scrolls under a resting pointer.
  text.addEventListener("pointermove", (event) => {
    const token = event.target.closest(".token");
    if (event.pointerType === "mouse" && token && (event.movementX || event.movementY)) describe(+token.dataset.token);
  });
  text.addEventListener("pointerleave", () => { if (current >= 0) describe(current); });
  text.addEventListener("click", (event) => {
    const token = event.target.closest(".token");
    if (token) choose(+token.dataset.token);
  });
  text.addEventListener("keydown", (event) => {
    if (!shown || event.ctrlKey || event.metaKey || event.altKey) return;
    const to = { ArrowRight: current + 1, ArrowLeft: current - 1, Home: 0, End: shown.item.num_tokens - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    choose(to, true);
  });
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select")) return;
    if (event.key === "/") { event.preventDefault(); find("query").focus(); }
    if (event.key === "n") toTrained((span) => span.start > current);
    if (event.key === "p") toTrained((span) => span.end <= current, -1);
    if (event.key === "[") step(-1);
    if (event.key === "]") step(1);
  });
  addEventListener("hashchange", follow);

  async function start() {
    find("viewer").hidden = false;
    for (const { item } of (await held).values()) list(item);
    if (!follow() && pick.options.length) display(pick.options[0].value);
  }
  start();
})();
