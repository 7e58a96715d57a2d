// The search runs in a Worker, which no browser starts from file://. There, this runs it in a hidden frame, which has the
// same messages. On any page, dashes before a word are taken from a query: to the search engine they mean "without".
(() => {
  const bare = (message) =>
    typeof message.data === "string" ? { ...message, data: message.data.replace(/(^|\s)-+/g, "$1") } : message;

  class FrameWorker extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const own = frame.contentWindow;
      own.document.open();
      this.ready = new Promise((resolve) => (own.loaded = () => resolve(own)));
      own.document.write(`<!doctype html><body><script src="${url}" onload="loaded()"><\/script>`);
      own.document.close();
      own.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
    }

    postMessage(message) {
      this.ready.then((own) => own.dispatchEvent(new MessageEvent("message", { data: bare(message) })));
    }

    terminate() {}
  }

  const Native = window.Worker;
  window.Worker =
    location.protocol === "file:"
      ? FrameWorker
      : class extends Native {
          postMessage(message, ...rest) {
            super.postMessage(bare(message), ...rest);
          }
        };
})();
