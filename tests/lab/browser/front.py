"""The front end of the lab in an empty page, over a real workbench without a kernel between."""

from __future__ import annotations

import json
from typing import Any

from playwright.sync_api import Locator, Page

from tilewright.lab.front.widget import Lab
from tilewright.lab.workbench.workbench import Workbench

_PAGE = """<!doctype html><html lang="en"><title>The lab</title><style>{style}</style>
<body style="margin: 12px"><main id="lab"></main></body></html>"""
_START = """async ([script, names, state]) => {
    const source = `${script}\\nexport {${names}};`;
    const blob = new Blob([source], {type: 'text/javascript'});
    window.front = await import(URL.createObjectURL(blob));
    const handlers = {};
    const call = (name, ...given) => (handlers[name] ?? []).forEach((f) => f(...given));
    const take = (after) => {
        if (after.revision === state.revision) return;
        state = after;
        call('change:state');
    };
    const model = {
        get: () => state,
        on: (name, handler) => (handlers[name] ??= []).push(handler),
        off: (name) => delete handlers[name],
        send: async ({id, command}) => {
            if (late) return late.push({id, command});
            const [answer, after] = await window.kernel(command);
            take(after);
            call('msg:custom', {id, answer});
        },
    };
    let late = null;
    window.hold = () => { late = []; };
    window.release = async () => {
        const held = late;
        late = null;
        for (const message of held) await model.send(message);
    };
    window.trigger = call;
    window.refresh = async () => take(await window.kernel(null).then(([, after]) => after));
    window.end = window.front.default.render({model, el: document.querySelector('#lab')});
}"""
_NAMES = "Lab, el, patch, seconds, change, code, digits, quantity, parts, lanes"


def open_front(page: Page, bench: Workbench) -> Locator:
    """Draw the lab of a workbench. `window.front` has the functions of the front end.

    `refresh()` draws the state that the workbench has. After `hold()` the kernel is busy: commands
    wait for `release()`, which carries them out in order.
    """

    def kernel(command: object) -> list[Any]:
        answer = bench.do(command)
        return json.loads(json.dumps([answer, bench.state()], allow_nan=False))  # type: ignore[no-any-return]

    page.expose_function("kernel", kernel)
    page.set_content(_PAGE.format(style=Lab._css))
    page.evaluate(_START, [Lab._esm, _NAMES, bench.state()])
    lab = page.locator("#lab")
    lab.locator(".version").first.wait_for()
    return lab
