// The search of the site runs in a worker, which browsers refuse to pages that were opened from a
// folder. There a hidden frame takes its place: the worker's script runs in it, and both sides
// exchange the same messages. The theme asks for the name `IFrameWorker`.

window.IFrameWorker = class extends EventTarget {
  constructor(url) {
    super();
    this.frame = document.createElement("iframe");
    this.frame.hidden = true;
    document.body.append(this.frame);
    const inside = this.frame.contentWindow;
    inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
    inside.importScripts = (...urls) =>
      urls.reduce((before, next) => before.then(() => this.load(next)), Promise.resolve());
    this.ready = this.load(url);
  }

  // Runs a script in the frame.
  load(url) {
    const script = this.frame.contentDocument.createElement("script");
    script.src = url;
    return new Promise((done, failed) => {
      script.onload = done;
      script.onerror = failed;
      this.frame.contentDocument.body.append(script);
    });
  }

  postMessage(data) {
    const event = () => new MessageEvent("message", { data });
    this.ready.then(() => this.frame.contentWindow.dispatchEvent(event()));
  }

  terminate() {
    this.frame.remove();
  }
};

if (location.protocol === "file:") window.Worker = window.IFrameWorker;
