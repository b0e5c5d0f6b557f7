// Lets the search work from a folder. A browser starts no worker from file:// addresses, so the
// worker's script runs in a hidden frame, with the two functions of workers that it uses.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.frame.title = "Search";
      const deliver = (data) => {
        const message = new MessageEvent("message", { data });
        this.dispatchEvent(message);
        if (this.onmessage) this.onmessage(message);
      };
      this.isReady = new Promise((resolve) => {
        this.frame.addEventListener("load", () => {
          const inside = this.frame.contentWindow;
          inside.send = (data) => inside.dispatchEvent(new MessageEvent("message", { data }));
          inside.postMessage = deliver;
          inside.importScripts = (...scripts) => Promise.all(scripts.map((script) => load(inside, script)));
          load(inside, address).then(resolve);
        });
      });
      document.body.appendChild(this.frame);
    }

    postMessage(data) {
      this.isReady.then(() => this.frame.contentWindow.send(data));
    }

    terminate() {
      this.frame.remove();
    }
  };

  const load = (inside, address) =>
    new Promise((resolve, reject) => {
      const script = inside.document.createElement("script");
      script.src = new URL(address, document.baseURI).href;
      script.onload = resolve;
      script.onerror = reject;
      inside.document.body.appendChild(script);
    });
}
