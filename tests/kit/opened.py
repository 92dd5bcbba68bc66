"""Pages in a folder, opened in a real browser, and what a script finds there."""

import html
import json
import re
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from kit.browser import browser_program

_TIMEOUT_S = 120
# Of the browser's own time, which stands still while it loads.
_PATIENCE_MS = 60_000

# In a frame, so that a page has the width that is asked for; the answer is written beside it.
_PROBE = """\
<!doctype html>
<iframe style="width: {width}px; height: 900px; border: 0" src="{page}"></iframe>
<script>
const frame = document.querySelector("iframe");
const state = {{}};
const ask = (window, document) => {{ {script} }};
const timer = setInterval(() => {{
  const page = frame.contentDocument;
  if (page === null || page.readyState !== "complete" || page.body === null) return;
  const found = ask(frame.contentWindow, page);
  if (found === undefined) return;
  clearInterval(timer);
  const answer = document.createElement("pre");
  answer.id = "answer";
  answer.textContent = JSON.stringify(found);
  document.body.append(answer);
}}, 20);
</script>
"""

# The least contrast of a text with what is behind it, by WCAG 2.
CONTRAST = r"""
const bright = colour => colour.match(/[\d.]+/g).slice(0, 3).map(each => each / 255)
  .map(each => each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4)
  .reduce((sum, each, place) => sum + each * [0.2126, 0.7152, 0.0722][place], 0);
const behind = element => {
  const colour = window.getComputedStyle(element).backgroundColor;
  return colour.startsWith("rgb(") ? colour : behind(element.parentElement);
};
const least = Math.min(...[...document.querySelectorAll("body *")]
  .filter(each => [...each.childNodes].some(inside => inside.nodeType === 3))
  .map(each => [bright(window.getComputedStyle(each).color), bright(behind(each))].sort((one, two) => one - two))
  .map(([dark, light]) => (light + 0.05) / (dark + 0.05)));
"""


class _Handler(SimpleHTTPRequestHandler):
    def do_GET(self) -> None:
        asked = urlsplit(self.path)
        if asked.path != "/probe":
            super().do_GET()
            return
        given = {name: values[0] for name, values in parse_qs(asked.query).items()}
        body = _PROBE.format(**given).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Print no log."""


class Site:
    """The folder, served on the loopback interface.

    Attributes:
        console: what the browser has written to its console: errors of the pages, and what they were denied.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self.console: list[str] = []

    def ask(self, page: str, script: str, *, width: int = 1280, dark: bool = False) -> Any:
        """Open a page, and return what a script returns.

        Args:
            page: its path.
            script: the body of a function of ``window`` and ``document``, called every now and then until it returns
                something; ``state`` is what it keeps from call to call.
            width: of the page, in pixels.
            dark: whether the reader's system is.
        """
        query = urlencode({"page": page, "script": script, "width": width})
        with tempfile.TemporaryDirectory(prefix="ticketlock-browser-") as home:
            options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
            options += ["--enable-logging=stderr"]
            options += [f"--user-data-dir={home}", f"--virtual-time-budget={_PATIENCE_MS}", "--window-size=1400,1000"]
            options += [f"--blink-settings=preferredColorScheme={0 if dark else 1}"]
            done = subprocess.run(
                [str(browser_program()), *options, "--dump-dom", f"{self._url}/probe?{query}"],
                env={"HOME": home, "PATH": "/usr/bin:/bin"},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
                timeout=_TIMEOUT_S,
            )
        self.console += [line for line in done.stderr.splitlines() if ":CONSOLE" in line]
        answer = re.search(r'<pre id="answer">(.*?)</pre>', done.stdout, re.DOTALL)
        assert answer is not None, f"{page} did not answer: {done.stderr[-2_000:]}\n{done.stdout[-2_000:]}"
        return json.loads(html.unescape(answer[1]))


@contextmanager
def served(folder: Path) -> Iterator[Site]:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield Site(f"http://127.0.0.1:{server.server_port}")
        finally:
            server.shutdown()
            thread.join()
