"""`make docs` builds the site without a warning, its links lead somewhere, and a browser shows what is on its pages."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest
from kit.browser import BrowserMissing, browser_program
from kit.opened import Site, served
from kit.pages import ROOT
from ticketlock_local.release.links import dead_links, page, pages

import ticketlock

pytestmark = pytest.mark.verify("builds the site, and installs a browser where there is none")
PHONE, DESK = 390, 1280


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("built") / "site"
    # With this environment, as it is installed, and with no way out of this machine: a proxy that nobody listens at.
    nowhere = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), "http://127.0.0.1:9")
    command = ["make", "docs", "--old-file=install", f"BIN={sys.executable}", f"SITE={built}"]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | nowhere, capture_output=True, text=True, check=False, timeout=300
    )
    assert (done.returncode, done.stderr) == (0, "")
    return built


@pytest.fixture(scope="module")
def site(folder: Path) -> Iterator[Site]:
    with served(folder) as found:
        yield found


def test_every_page_of_the_repository_is_there_and_no_link_is_broken(folder: Path) -> None:
    written = {
        path.relative_to(ROOT) for place in (".", "docs", "docs/decisions") for path in (ROOT / place).glob("*.md")
    }
    assert sorted(each for each in written if not (folder / each).with_suffix(".html").is_file()) == []
    assert dead_links(folder) == []


@pytest.mark.parametrize("target", ["gone.html", "other.html#gone", "#gone", "picture.svg", "file:///there"])
def test_a_broken_link_is_named(tmp_path: Path, target: str) -> None:
    (tmp_path / "other.html").write_text('<h1 id="there">There</h1> <a href="#there">There</a>')
    (tmp_path / "one.html").write_text(f'<a href="other.html#there">There</a> <a href="{target}">There</a>')
    assert dead_links(tmp_path) == [f"one.html -> {target}"]


def test_the_front_page_is_the_readme_with_its_version_its_picture_and_three_doors(site: Site) -> None:
    title, brand, described, icon, width, doors, beside = site.ask(
        "/",
        """
        const picture = document.querySelector("article img");
        if (picture === null || !picture.complete) return undefined;
        const doors = [...document.querySelectorAll("article li")].slice(0, 3);
        return [
          document.querySelector("h1").firstChild.textContent,
          document.querySelector(".sidebar-brand-text").textContent,
          document.querySelector("meta[name=description]").content,
          document.querySelector("link[rel~=icon]").getAttribute("href"),
          picture.naturalWidth,
          doors.map(each => each.querySelector("a").getAttribute("href")),
          new Set(doors.map(each => each.getBoundingClientRect().top)).size === 1,
        ];
        """,
    )
    assert title == "ticketlock"
    assert brand == f"ticketlock {ticketlock.__version__}"
    assert described.startswith("FIFO locks with fencing tokens for DynamoDB, one workflow at a time")
    assert icon.startswith("_static/favicon.svg")
    assert width > 0
    assert doors == ["docs/workflows.html", "docs/python.html", "docs/units.html"]
    assert beside


ASKED = {
    "who holds the lock": "docs/runbook.html#who-holds-the-lock-and-who-is-stuck",
    "lock is stuck": "docs/runbook.html",
    "cost": "docs/costs.html",
    "price": "docs/costs.html#prices-of-workflows",
    "exactly once": "docs/units.html#exactly-once",
    "test my code": "docs/python.html#test-your-code",
    "asyncio": "docs/python.html#asyncio",
    "delete the stack": "docs/deploying.html#delete-the-stack",
    "permissions": "docs/permissions.html",
    "resume a unit": "docs/save-and-resume.html",
    "sweep": "docs/units-table.html#sweeping",
    "terraform": "docs/construct.html#sam-terraform-typescript",
    "stop using": "docs/leaving.html",
    "semaphore": "docs/python.html#several-locks-semaphores-readers-and-writers",
    "unit test without aws": "docs/command.html#try-it-without-aws-local",
}


@pytest.mark.parametrize("question", ASKED)
def test_search_answers_with_the_section_for_users_and_decisions_come_last(site: Site, question: str) -> None:
    found = site.ask(
        f"/search.html?{urlencode({'q': question})}",
        """
        if (document.querySelector("#search-results .search-summary:not(:empty)") === null) return undefined;
        return [...document.querySelectorAll("#search-results li a")].map(each => each.getAttribute("href"));
        """,
    )
    assert found[0] == ASKED[question]
    users = [number for number, each in enumerate(found) if each.startswith(("docs/python", "docs/units", "docs/op"))]
    decisions = [number for number, each in enumerate(found) if each.startswith("docs/decisions")]
    assert max(users, default=0) < min(decisions, default=len(found))


def test_search_finds_the_error_of_a_wait_that_ended_first(site: Site, folder: Path) -> None:
    first, results = site.ask(
        "/README.html",
        """
        if (!state.sent) {
          state.sent = true;
          const input = document.querySelector(".sidebar-search");
          input.value = "RecordWaitExceeded";
          input.form.submit();
          return undefined;
        }
        const links = [...document.querySelectorAll("#search-results li a")];
        if (links.length < 2) return undefined;
        return [links[0].getAttribute("href"), links.length];
        """,
    )
    assert results > 1
    target = urlsplit(first)
    assert target.path.endswith("docs/reference/errors.html")
    assert target.fragment == "ticketlock.errors.RecordWaitExceeded"
    assert target.fragment in page(folder / "docs/reference/errors.html").anchors


def test_a_code_block_is_highlighted_and_can_be_read(site: Site) -> None:
    code, keyword = site.ask(
        "/docs/python.html",
        """
        const block = document.querySelector(".highlight-python pre");
        const keyword = block.querySelector(".k, .kn");
        return [window.getComputedStyle(block).color, window.getComputedStyle(keyword).color];
        """,
    )
    assert code != keyword


def test_a_sample_is_copied_without_its_prompts_and_answers(site: Site) -> None:
    copied = site.ask(
        "/docs/runbook.html",
        """
        const button = document.querySelector(".highlight-console button.copybtn");
        if (button === null) return undefined;
        if (!state.clicked) {
          state.clicked = true;
          document.execCommand = () => { state.copied = document.querySelector("textarea").value; return true; };
          button.click();
        }
        return state.copied;
        """,
    )
    assert copied.split("\n")[0] == "ticketlock top --once"
    assert "stuck" not in copied


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_site_is_as_dark_as_the_system_of_its_reader(site: Site, dark: bool) -> None:
    behind, text = site.ask(
        "/README.html",
        """
        const of = colour => colour.match(/\\d+/g).slice(0, 3).reduce((sum, each) => sum + Number(each), 0);
        const style = window.getComputedStyle(document.body);
        return [of(style.backgroundColor), of(style.color)];
        """,
        dark=dark,
    )
    assert (text > behind) is dark


@pytest.mark.parametrize("width", [PHONE, DESK])
def test_no_page_is_wider_than_the_screen_no_sample_than_the_desk_and_every_picture_is_drawn(
    site: Site, folder: Path, width: int
) -> None:
    names = [str(path.relative_to(folder)) for path in pages(folder) if path.name != "index.html"]
    assert len(names) > 40
    wrong = site.ask(
        f"/{names[0]}",
        f"""
        state.left ??= {names!r};
        state.wrong ??= [];
        if (!window.location.pathname.endsWith(state.left[0])) return undefined;
        const pictures = [...document.querySelectorAll("article img")];
        if (pictures.some(each => !each.complete)) return undefined;
        const name = state.left.shift();
        const blank = pictures.filter(each => each.naturalWidth === 0).map(each => each.src);
        const tooWide = document.documentElement.scrollWidth - window.innerWidth;
        const cut = [...document.querySelectorAll("article pre")].filter(each => each.scrollWidth > each.clientWidth);
        const samples = {width} < {DESK} ? [] : cut.map(each => each.textContent);
        const undrawn = document.querySelectorAll("article .mermaid").length;
        if (tooWide > 0 || blank.length > 0 || samples.length > 0 || undrawn > 0)
          state.wrong.push([name, tooWide, blank, samples, undrawn]);
        if (state.left.length === 0) return state.wrong;
        window.location.pathname = "/" + state.left[0];
        return undefined;
        """,
        width=width,
    )
    assert wrong == []


def test_without_a_browser_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BrowserMissing, match="apt-get install chromium-headless-shell"):
        browser_program()
