// A kernel for notebooks of VS Code: cells run in one of a Jupyter server, and what the kernel says
// goes to the page of the outputs too, where `widgets.mjs` draws widgets.
const vscode = require("vscode");
const { randomUUID } = require("crypto");
const { readFileSync } = require("fs");
const { join } = require("path");

exports.activate = async (context) => {
  const { url, token } = JSON.parse(readFileSync(join(context.extensionPath, "server.json"), "utf8"));
  const headers = { Authorization: `token ${token}` };
  const answer = await fetch(`${url}api/kernels`, { method: "POST", headers, body: '{"name": "python3"}' });
  const { id, name } = await answer.json();
  const session = randomUUID();
  const socket = new WebSocket(`${url.replace("http", "ws")}api/kernels/${id}/channels?session_id=${session}&token=${token}`);
  socket.binaryType = "arraybuffer";
  await new Promise((resolve) => { socket.onopen = resolve; });

  // The page gets everything from the start of the kernel on, in order, once it asks.
  const page = vscode.notebooks.createRendererMessaging("tilewright-tests.widgets");
  const heard = [];
  let told = 0;
  let ready = false;
  const tell = () => {
    while (ready && told < heard.length) page.postMessage({ data: heard[told++] });
  };
  page.onDidReceiveMessage(({ message }) => {
    if (message.ready) {
      page.postMessage({ kernel: { id, name }, session });
      ready = true;
      tell();
    } else socket.send(message.text ?? Buffer.from(message.binary, "base64"));
  });
  const runs = new Map();
  socket.onmessage = ({ data }) => {
    heard.push(typeof data === "string" ? { text: data } : { binary: Buffer.from(data).toString("base64") });
    tell();
    if (typeof data !== "string") return;
    const message = JSON.parse(data);
    runs.get(message.parent_header.msg_id)?.(message);
  };

  const controller = vscode.notebooks.createNotebookController("tilewright-tests.kernel", "jupyter-notebook", "Python");
  context.subscriptions.push(controller);
  let count = 0;
  const shown = new Map(); // the outputs that the kernel may change
  const run = (cell) => new Promise((resolve) => {
    const execution = controller.createNotebookCellExecution(cell);
    execution.executionOrder = ++count;
    execution.start(Date.now());
    execution.clearOutput();
    const msg_id = randomUUID();
    runs.set(msg_id, ({ header, content }) => {
      if (header.msg_type === "status" && content.execution_state === "idle") {
        execution.end(true, Date.now());
        resolve();
      } else if (header.msg_type === "update_display_data") {
        execution.replaceOutputItems(items(content.data), shown.get(content.transient.display_id));
      } else if (["display_data", "execute_result"].includes(header.msg_type)) {
        const output = new vscode.NotebookCellOutput(items(content.data));
        execution.appendOutput(output);
        if (content.transient?.display_id) shown.set(content.transient.display_id, output);
      } else if (header.msg_type === "stream" || header.msg_type === "error") {
        const text = content.text ?? content.traceback.join("\n");
        execution.appendOutput(new vscode.NotebookCellOutput([vscode.NotebookCellOutputItem.stdout(text)]));
      }
    });
    const header = { msg_id, msg_type: "execute_request", session, username: "", version: "5.3", date: new Date().toISOString() };
    const content = { code: cell.document.getText(), silent: false, store_history: true, user_expressions: {}, allow_stdin: false };
    socket.send(JSON.stringify({ channel: "shell", header, parent_header: {}, metadata: {}, content, buffers: [] }));
  });
  controller.executeHandler = async (cells) => {
    for (const cell of cells) await run(cell);
  };
};

function items(data) {
  return Object.entries(data).map(([mime, value]) => {
    const text = typeof value === "string" ? value : JSON.stringify(value);
    return vscode.NotebookCellOutputItem.text(text, mime);
  });
}
