"JupyterLab in Chromium, as a learner has it: `tito-nb learn` on a copy of the lessons, one server and one page for all notebooks."
import json, os, re, subprocess, sys, time, urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from notebooks import ROOT

CHROMIUM = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage"]
SETTINGS = {  # every cell is in the page; no news, no autosave
    "@jupyterlab/notebook-extension/tracker": {"windowingMode": "none"},
    "@jupyterlab/apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    "@jupyterlab/docmanager-extension/plugin": {"autosave": False},
}
OPEN = """async path => {
  const app = window.jupyterapp; await app.started;
  const w = await app.commands.execute('docmanager:open', {path});
  await w.context.ready; window.nb = w; app.shell.activateById(w.id); if (app.shell.collapseLeft) app.shell.collapseLeft();
}"""
RUN_ALL = """async timeout => {
  const w = window.nb, late = new Promise((_, no) => setTimeout(() => no(new Error('the notebook did not end in time')), timeout));
  const dialogs = setInterval(() => { const b = document.querySelector('.jp-Dialog .jp-mod-accept'); if (b) b.click(); }, 200);
  const pause = ms => new Promise(yes => setTimeout(yes, ms));
  try {
    await Promise.race([w.sessionContext.ready, late]);
    await Promise.race([window.jupyterapp.commands.execute('notebook:run-all-cells'), late]);
    for (let i = 0; i < 40 && /Loading widget\\.\\.\\./.test(w.node.textContent); i++) await pause(100);
    await pause(300);
  } finally { clearInterval(dialogs); }
}"""
CELLS = """() => window.nb.content.model.toJSON().cells.filter(c => c.cell_type === 'code').map(c => ({
  id: c.id, ran: c.execution_count !== null || !String([].concat(c.source).join('')).trim(), tags: (c.metadata && c.metadata.tags) || [],
  errors: (c.outputs || []).filter(o => o.output_type === 'error').map(o => `${o.ename}: ${o.evalue}`)}))"""
BROKEN = """() => [...window.nb.node.querySelectorAll('.jp-OutputArea-output')].filter(e => e.querySelector('.jupyter-widgets-error-widget') ||
  /Error displaying widget|Failed to load model class|Loading widget\\.\\.\\.|Error creating widget|model not found|Javascript Error/.test(e.textContent)).map(
  e => e.textContent.trim().slice(0, 160))"""
CLOSE = """async () => { const w = window.nb; await w.sessionContext.shutdown(); w.context.model.dirty = false; w.close(); w.dispose(); }"""
AXE = """async tags => {
  const outputs = [...window.nb.node.querySelectorAll('.jp-OutputArea-output')].filter(e => e.querySelector('.tn, .jupyter-widgets, svg, img, table'));
  if (!outputs.length) return {violations: [], looked: 0};
  const closed = outputs.flatMap(e => [...e.querySelectorAll('details:not([open])')]); closed.forEach(d => d.open = true);
  // JupyterLab's body has no height and hides what overflows: axe would take everything in it for invisible and judge no contrast
  const height = document.body.style.height; document.body.style.height = '100vh';
  const r = await axe.run({include: outputs}, {runOnly: tags, resultTypes: ['violations']});
  document.body.style.height = height; closed.forEach(d => d.open = false);
  return {looked: outputs.length, violations: r.violations.map(v => `${v.id} (${v.nodes.length}): ${v.help}; ${v.nodes[0].html.slice(0, 200)} ${v.nodes[0].failureSummary}`)};
}"""
OVERFLOW = """() => [...window.nb.node.querySelectorAll('.jp-OutputArea-output')].filter(e => e.querySelector('.tn, .jupyter-widgets')).flatMap(
  out => [out, ...out.querySelectorAll('.tn, .jupyter-widgets')].filter(e => e.clientWidth && e.scrollWidth > e.clientWidth + 1)
    .map(e => `${e.className} is ${e.scrollWidth} px wide in ${e.clientWidth}: ${e.textContent.trim().slice(0, 60)}`))"""

TALL = """() => {  // from the top, how tall are the cells together
  window.nb.node.querySelector('.jp-WindowedPanel-outer').scrollTop = 0;
  const cells = [...window.nb.node.querySelectorAll('.jp-Cell')].map(e => e.getBoundingClientRect());
  return Math.max(...cells.map(r => r.bottom)) - Math.min(...cells.map(r => r.top)); }"""


@contextmanager
def serve(lessons: Path, home: Path) -> Iterator[str]:
    "The address of a running `tito-nb learn --folder lessons`, with settings and signatures of its own in `home`"
    for name, values in SETTINGS.items():
        path = home / "settings" / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values))
    env = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "WAYLAND_DISPLAY")}
    env |= {"JUPYTERLAB_SETTINGS_DIR": str(home / "settings"), "JUPYTERLAB_WORKSPACES_DIR": str(home / "workspaces"), "IPYTHONDIR": str(home / "ipython"),
            "JUPYTER_CONFIG_DIR": str(home / "config"), "JUPYTER_DATA_DIR": str(home / "data"), "JUPYTER_RUNTIME_DIR": str(home / "runtime")}
    script = Path(sys.executable).parent / "tito-nb"
    if script.exists():
        command = [str(script)]
    else:  # the package is not installed, only importable
        env["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [env.get("PYTHONPATH")])])
        command = [sys.executable, "-c", "import sys; from tito_nb.cli import main; sys.exit(main())"]
    command += ["learn", "--folder", str(lessons), "--port=0", "--IdentityProvider.token=t", "--LabApp.expose_app_in_browser=True"]
    log = home / "server.log"
    with log.open("w") as out:
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env=env, cwd=home)
    try:
        yield answers(server, log)
    finally:
        server.terminate()
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def answers(server: subprocess.Popen, log: Path) -> str:
    "The address that the server prints, once it answers there: it is printed a moment before the socket accepts"
    end = time.monotonic() + 90
    while time.monotonic() < end and server.poll() is None:
        if found := re.search(r"http://127\.0\.0\.1:\d+", log.read_text()):
            try:
                urllib.request.urlopen(f"{found[0]}/api?token=t", timeout=5)
                return found[0]
            except OSError:
                pass
        time.sleep(0.1)
    raise RuntimeError(f"JupyterLab did not start:\n{log.read_text()[-3000:]}")


@dataclass
class Traffic:
    "Messages between the page and the kernel"
    sent: int = 0
    received: int = 0
    received_bytes: int = 0


@dataclass
class Desk:
    "One page of JupyterLab and what went wrong in it"
    page: object
    page_errors: list[str] = field(default_factory=list)
    callback_errors: list[str] = field(default_factory=list)
    traffic: Traffic = field(default_factory=Traffic)

    def __post_init__(self):
        self.page.on("pageerror", lambda e: self.page_errors.append(str(e)[:300]))
        self.page.on("websocket", self.listen)

    def listen(self, socket) -> None:
        "Count what goes to and from a kernel"
        if "/channels" in socket.url:
            socket.on("framesent", self.count_sent)
            socket.on("framereceived", self.count_received)

    def count_sent(self, payload) -> None:
        self.traffic.sent += 1

    def count_received(self, payload) -> None:
        raw = payload if isinstance(payload, bytes) else payload.encode()
        self.traffic.received += 1
        self.traffic.received_bytes += len(raw)
        # an error in a widget's callback reaches no cell: it comes as an error or as text in answer to the widget's message
        kinds = re.findall(rb'"msg_type": ?"(\w+)"', raw)
        if b"Traceback" in raw and b"comm_msg" in kinds and {b"error", b"stream"} & set(kinds):
            self.callback_errors.append(re.sub(r"\\u001b\[[0-9;]*m", "", raw.decode("utf-8", "replace"))[-600:])

    def open(self, path: str) -> None:
        "Open a notebook; it is the page's notebook from now on"
        self.page_errors.clear()
        self.callback_errors.clear()
        self.page.evaluate(OPEN, path)

    def run_all(self, seconds: float = 120) -> None:
        self.page.evaluate(RUN_ALL, seconds * 1000)

    def close(self) -> None:
        "End the kernel and put the notebook away, unsaved"
        self.page.evaluate(CLOSE)

    def faults(self) -> list[str]:
        "Everything that went wrong since the notebook was opened"
        out = []
        for cell in self.page.evaluate(CELLS):
            out += [f"#{cell['id']}: {error}" for error in cell["errors"]] if "raises-exception" not in cell["tags"] else []
            out += [f"#{cell['id']}: did not run"] if not cell["ran"] else []
        out += [f"broken output: {words}" for words in self.page.evaluate(BROKEN)]
        out += [f"error in the page: {error}" for error in self.page_errors]
        return out + [f"error in a callback: {error}" for error in self.callback_errors]

    def audit(self) -> dict:
        "What axe finds inside the outputs"
        from axe_playwright_python.base import AXE_SCRIPT

        if not self.page.evaluate("() => typeof axe !== 'undefined'"):
            self.page.evaluate(AXE_SCRIPT)
        return self.page.evaluate(AXE, ["wcag2a", "wcag2aa", "best-practice"])

    def overflow(self) -> list[str]:
        "Pictures and widgets that are wider than their place"
        return self.page.evaluate(OVERFLOW)

    def theme(self, name: str) -> None:
        "Change to the theme `name`, for example `JupyterLab Dark`"
        self.page.evaluate("theme => window.jupyterapp.commands.execute('apputils:change-theme', {theme})", name)
        self.page.wait_for_function("dark => document.body.dataset.jpThemeLight === (dark ? 'false' : 'true')", arg="Dark" in name)

    def screenshot(self, path: Path, width: int = 1280) -> None:
        "The whole notebook as a picture"
        self.page.set_viewport_size({"width": width, "height": 900})
        height = self.page.evaluate(TALL)
        self.page.set_viewport_size({"width": width, "height": min(int(height) + 160, 16000)})
        self.page.evaluate(TALL)
        path.parent.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=path)
        self.page.set_viewport_size({"width": width, "height": 900})


@contextmanager
def desk(base: str, chromium: str) -> Iterator[Desk]:
    "A page of the JupyterLab at `base`"
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=CHROMIUM)
        try:
            page = browser.new_page(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
            page.set_default_timeout(30_000)
            made = Desk(page)
            page.goto(f"{base}/lab?token=t")
            page.wait_for_function("() => window.jupyterapp !== undefined", timeout=60_000)
            yield made
        finally:
            browser.close()
