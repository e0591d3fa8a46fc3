// Draws widgets with the manager of Microsoft's Jupyter extension, as that does: in the page of the
// outputs, over a connection of @jupyterlab/services whose socket is the messages of VS Code.

const at = (name) => new URL(`tools/${name}`, import.meta.url).href;

/** The extension gives widgets a white background, in dark themes too. */
const STYLE = ".cell-output-ipywidget-background { background: white !important; }";

export async function activate(context) {
  await script("services.js"); // before require.js, which would take it
  await script("require.js");
  const { activate: prepare } = await import(at("manager.js"));
  prepare();
  window.vscIPyWidgets8.load();
  document.head.append(Object.assign(document.createElement("style"), { textContent: STYLE }));
  const manager = connect(context);
  context.postMessage({ ready: true });
  return {
    async renderOutputItem(item, element) {
      const { model_id } = item.json();
      element.classList.add("cell-output-ipywidget-background");
      const place = element.appendChild(document.createElement("div"));
      place.className = "cell-output-ipywidget-background";
      const widgets = await manager;
      while (!widgets.has_model(model_id)) await new Promise((later) => setTimeout(later, 20));
      const view = await widgets.create_view(await widgets.get_model(model_id), { el: place });
      await widgets.display_view(item.json(), view, { node: place });
    },
  };
}

function script(name) {
  return new Promise((resolve, reject) => {
    const element = Object.assign(document.createElement("script"), { src: at(name), onload: resolve, onerror: reject });
    document.head.append(element);
  });
}

/** The manager, once VS Code has said which kernel there is. */
function connect(context) {
  const { KernelConnection, ServerConnection } = window["@jupyterlab/services"];
  let socket;
  class Socket {
    protocol = "";
    readyState = 1;
    constructor() {
      socket = this;
      setTimeout(() => this.onopen({}));
    }
    send(data) {
      if (typeof data === "string") context.postMessage({ text: data });
      else context.postMessage({ binary: btoa(String.fromCharCode(...new Uint8Array(data))) });
    }
    close() {}
  }
  const loader = {
    widgetsRegisteredInRequireJs: new Set(),
    async loadWidgetScript(name) {
      window.requirejs.config({ paths: { [name]: at(`nbextensions/${name}/index`) } });
    },
    errorHandler: (...error) => console.error(...error),
    successHandler: () => {},
  };
  return new Promise((resolve) => {
    context.onDidReceiveMessage(({ kernel, session, data }) => {
      if (kernel) {
        const serverSettings = ServerConnection.makeSettings({ WebSocket: Socket, wsUrl: "ws://kernel" });
        const connection = new KernelConnection({ model: kernel, clientId: session, handleComms: true, serverSettings });
        resolve(new window.vscIPyWidgets.WidgetManager(connection, null, loader, () => {}));
      } else {
        const { text, binary } = data;
        const bytes = binary && Uint8Array.from(atob(binary), (c) => c.charCodeAt(0)).buffer;
        socket.onmessage({ data: text ?? bytes });
      }
    });
  });
}
