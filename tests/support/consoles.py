"""A console as a process, and a browser that looks at it."""

from __future__ import annotations

import http.client
import json
import re
import shutil
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

from tests.support.processes import Process
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WAIT_SECONDS: Final = 60.0
REFUSAL: Final = re.compile(r"/api/.*the server responded with a status of (400|401|403|404|409|503)")
"""What a browser notes of an answer that the page shows in words."""
ARGUMENTS: Final = (
    "--headless=new",
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--disable-background-networking",
    "--no-first-run",
    "--window-size=1280,900",
)


class Answer(NamedTuple):
    """What the console answered."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body's value."""
        return json.loads(self.body)


class ConsoleProcess:
    """A console that runs."""

    def __init__(self, process: Process, port: int, scheme: str) -> None:
        self.process = process
        self.port = port
        self.address = f"{scheme}://localhost:{port}"

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> Answer:
        """One request as a page of the console sends it; a header may be given otherwise, or left out as ""."""
        given: dict[str, str] = {}
        if method != "GET":
            given |= {"origin": self.address, "content-type": "application/json"}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        return self._exchange(method, path, None if method == "GET" else json.dumps(body or {}).encode(), given)

    def push(self, body: bytes, **headers: str) -> Answer:
        """Metrics as a client or broker sends them."""
        given = {"content-type": "application/x-protobuf", "x-kafka-client-instance-id": str(UUID(int=9))}
        return self._exchange("POST", "/v1/metrics", body, given | headers)

    def _exchange(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> Answer:
        given = {"host": f"localhost:{self.port}", **headers}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_SECONDS)
        try:
            connection.request(method, path, body, {name: value for name, value in given.items() if value})
            response = connection.getresponse()
            return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        finally:
            connection.close()


@contextmanager
def running_console(folder: Path, bootstrap_servers: str, *options: str) -> Iterator[ConsoleProcess]:
    """A console for as long as the block lasts."""
    words = [sys.executable, "-P", "-m", "barnabas.cli.main", "console", "--listen", "localhost:0"]
    words += ["--bootstrap-server", bootstrap_servers, "--data", str(folder / "console"), *options]
    with Process("console", words, folder / "console.log") as process:
        found = wait_until(
            lambda: re.search(r"is on (https?)://localhost:(\d+)", process.output()), "the console to listen"
        )
        yield ConsoleProcess(process, int(found[2]), found[1])


class Browser:
    """A browser with one page."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver
        self.address = ""

    def open(self, path: str) -> None:
        """Load a page of the console anew."""
        self.driver.get(self.address + path)

    def run(self, script: str, *arguments: object) -> Any:
        """What a script returns."""
        return self.driver.execute_script(script, *arguments)

    def text(self, selector: str = "body") -> str:
        """What is seen of the first element."""
        return str(self.run("return document.querySelector(arguments[0])?.innerText ?? ''", selector))

    def wait_for(self, text: str, selector: str = "body", seconds: float = WAIT_SECONDS) -> None:
        """Wait until a text is seen."""
        try:
            wait_until(lambda: text in self.text(selector), f"{text!r} to be in {selector}", seconds)
        except AssertionError as failed:
            raise AssertionError(f"{failed}; the page says:\n{self.text()}") from None

    def wait_until_gone(self, text: str, selector: str = "body", seconds: float = WAIT_SECONDS) -> None:
        """Wait until a text is not seen any more."""
        wait_until(lambda: text not in self.text(selector), f"{text!r} to be gone from {selector}", seconds)

    def find(self, selector: str) -> WebElement:
        """The first element that is seen; waits until there is one."""

        def seen() -> WebElement | None:
            try:
                return next(filter(WebElement.is_displayed, self.driver.find_elements(By.CSS_SELECTOR, selector)), None)
            except StaleElementReferenceException:
                return None

        return wait_until(seen, f"an element {selector}")

    def click(self, label: str, selector: str = "button, a") -> None:
        """Click what has this text."""
        script = (
            "const found = [...document.querySelectorAll(arguments[0])].filter((each) => each.innerText.trim() === "
            "arguments[1] && !each.disabled); found[found.length - 1]?.click(); return found.length"
        )
        wait_until(lambda: self.run(script, selector, label) or None, f"something to click that says {label!r}")

    def type(self, selector: str, text: str) -> None:
        """Type into a field, in place of what is there."""
        field = self.find(selector)
        field.clear()
        field.send_keys(text)

    def press(self, *keys: str) -> None:
        """Press keys, wherever the focus is."""
        ActionChains(self.driver).send_keys(*keys).perform()

    def choose(self, selector: str, value: str) -> None:
        """Choose of a list."""
        self.run(
            "const list = document.querySelector(arguments[0]); list.value = arguments[1];"
            "list.dispatchEvent(new Event('change', {bubbles: true}))",
            selector,
            value,
        )

    def resize(self, width: int, height: int = 900) -> None:
        """Have another width."""
        sizes = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", sizes)

    def prefer(self, scheme: str) -> None:
        """Have a system that is dark or light."""
        features = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", features)

    def complaints(self) -> list[str]:
        """What the browser has complained about since the last time: errors of scripts, and breaches of the policy."""
        return [
            entry["message"]
            for entry in self.driver.get_log("browser")  # type: ignore[no-untyped-call]
            if entry["level"] in ("SEVERE", "WARNING") and not REFUSAL.search(entry["message"])
        ]


@contextmanager
def running_browser() -> Iterator[Browser]:
    """A browser for as long as the block lasts."""
    programs = [shutil.which(name) for name in ("chromium", "google-chrome")]
    chrome, chromedriver = next(filter(None, programs), None), shutil.which("chromedriver")
    assert chrome and chromedriver, "chromium and chromedriver are missing: sh scripts/prerequisites.sh installs them"
    options = Options()
    options.binary_location = chrome
    for argument in ARGUMENTS:
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(chromedriver))
    driver.set_script_timeout(WAIT_SECONDS)
    try:
        yield Browser(driver)
    finally:
        driver.quit()


__all__ = ["Browser", "ConsoleProcess", "Keys", "running_browser", "running_console"]
