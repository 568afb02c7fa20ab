#!/usr/bin/python3
"""The agent's page in a browser: what it shows of a real program, and moving it there.

  browsed.py BUSY [PICTURE]

With PICTURE there is no test: the page is drawn there, after two minutes (doc/page.png).
"""

import json
import os
import subprocess
import sys
import time

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from lab import DONE, SKIPPED, Lab, Program, check, expect, find_reseat, free_port, until

MARKUP = "<img-src=x-onerror=alert(1)>"
TABS_MAX = 30
PICTURE_SECONDS = 120
NARROW, WIDE = 360, 1400
CONTRAST_LEAST = 4.5  # WCAG AA

# The least contrast of a text with what is behind it.
CONTRAST = """
const light = text => {
  const [r, g, b] = text.match(/[\\d.]+/g).slice(0, 3).map(one => one / 255)
    .map(one => one <= .04045 ? one / 12.92 : ((one + .055) / 1.055) ** 2.4);
  return .2126 * r + .7152 * g + .0722 * b;
};
const behind = one => {
  for (; one; one = one.parentElement) {
    const color = getComputedStyle(one).backgroundColor;
    if (!/, 0\\)$/.test(color)) return color;
  }
  return "rgb(255, 255, 255)";
};
return Math.min(...Array.from(document.querySelectorAll("body *"))
  .filter(one => !one.closest("script, style, dialog:not([open])") && one.checkVisibility()
    && Array.from(one.childNodes).some(node => node.nodeType === 3 && node.data.trim()))
  .map(one => {
    const [a, b] = [light(getComputedStyle(one).color), light(behind(one))].sort((x, y) => y - x);
    return (a + .05) / (b + .05);
  }));
"""
# How long events took from the agent to the page, by one clock.
WATCH = """
window.delays = [];
new MutationObserver(() => {
  const first = document.querySelector("#events time");
  if (first) delays.push(Date.now() - new Date(first.dateTime));
}).observe(document.getElementById("events"), {childList: true});
"""


class Browser:
    def __init__(self, lab):
        home = lab.path("browser")
        os.mkdir(home)
        env = dict(os.environ, HOME=home, TMPDIR=home, XDG_CONFIG_HOME=home, XDG_CACHE_HOME=home)
        options = webdriver.ChromeOptions()
        for one in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-extensions",
                    "--disable-background-networking", f"--user-data-dir={home}/data", f"--window-size={WIDE},900"):
            options.add_argument(one)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(service=Service("/usr/bin/chromedriver", env=env), options=options)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.driver.quit()

    def run(self, script):
        return self.driver.execute_script(script)

    def text(self, selector):
        return self.run(f"return document.querySelector({json.dumps(selector)})?.innerText || ''")

    def sees(self, selector, text):
        until(f"{selector} says {text}", lambda: text in self.text(selector), lambda: self.text("body"))

    def row(self, app):
        return self.text(f'#programs tr[data-id="{app["id"]}"]')

    def press(self, *keys):
        ActionChains(self.driver).send_keys(*keys).perform()

    def tab_to(self, label):
        """Press the key until what has this label has the focus."""
        for _ in range(TABS_MAX):
            if self.driver.switch_to.active_element.accessible_name.startswith(label):
                return
            self.press(Keys.TAB)
        check(f"{label} is reached by the keyboard", False)


def words_of(app):
    return [app["name"], str(app["pid"]), app["device"], app["state"]]


def is_shown_and_moved(lab, program):
    """It says what ps and devices say, and the keyboard alone moves the program."""
    with Program(lab, [program, "--mib", "16", "--rest", "20"], "--name", "busy", "--device", "cpu0", busy=True,
                 stdout=subprocess.DEVNULL) as busy, Browser(lab) as browser:
        app = busy.comes_to("it runs", lambda app: app["state"] == "running" and app["device"] == "cpu0")
        browser.driver.get(lab.control("page", "--json")[1]["url"])
        browser.sees("#state", "live")
        browser.sees("#programs", "busy")
        expect("the address has no secret", browser.driver.current_url.partition("#")[1:], ("", ""))
        says(lab, browser)
        is_moved_by_keyboard(browser, busy, app)
        looks_well(browser)
        markup_is_text(lab, browser, program)
        lives_on(lab, browser, busy)
        # Requests that a stopped agent did not answer, and those without its challenge, are no problem.
        problems = [entry["message"] for entry in browser.driver.get_log("browser")
                    if "Failed to load resource" not in entry["message"]]
        expect("nothing went wrong in the page", problems, [])
        expect("the program ends well", busy.end()[0], 0)


def says(lab, browser):
    for one in lab.control("ps", "--json")[1]["apps"]:
        for word in words_of(one):
            check(f"the page says {word}", word in browser.row(one), browser.row(one))
    for device in lab.control("devices", "--json")[1]["devices"]:
        check(f"the page has {device['name']}", device["device"] in browser.text("#devices"), browser.text("#devices"))
        for one in device["apps"]:
            label = f'#devices ul[aria-label="Programs on {device["name"]}"]'
            check(f"the page has {one['name']} there", one["name"] in browser.text(label), browser.text(label))
    # Each picture and button has a name for those who do not see it.
    for one in browser.driver.find_elements("css selector", "#main svg, #main [role=img], #main button, #main input"):
        check("it has a name", one.accessible_name, browser.text("#main"))
    paint = browser.run("return performance.getEntriesByName('first-contentful-paint')[0]?.startTime")
    print(f"first paint: {paint} ms (200 are wanted at most)")


def is_moved_by_keyboard(browser, busy, app):
    browser.run(WATCH)
    browser.tab_to("Move busy")
    browser.press(Keys.ENTER)
    until("the dialog is open", lambda: browser.run("return document.getElementById('mover').open"))
    browser.tab_to("To device")
    check("it cannot be moved before the answer", browser.run("return document.getElementById('confirm').disabled"))
    browser.press(Keys.ARROW_DOWN)
    browser.sees("#answer", "Yes: it can move from cpu0 to cpu1")
    expect("a dry run moves nothing", busy.app()["device"], "cpu0")
    browser.press(Keys.ESCAPE)
    until("the dialog is closed", lambda: not browser.run("return document.getElementById('mover').open"))
    expect("no is no", busy.app()["device"], "cpu0")
    browser.tab_to("Move busy")
    browser.press(Keys.ENTER)
    browser.tab_to("To device")
    browser.press(Keys.ARROW_DOWN)
    browser.sees("#answer", "Yes: it can move")
    browser.press(Keys.TAB, Keys.TAB)
    expect("the next button but one moves", browser.driver.switch_to.active_element.accessible_name, "Move")
    browser.press(Keys.ENTER)
    busy.comes_to("it is on cpu1", lambda app: app["device"] == "cpu1" and not app.get("move"))
    until("the page says so", lambda: "cpu1" in browser.row(app), lambda: browser.row(app))
    browser.sees("#events", "cpu0 → cpu1: done")
    delays = browser.run("return delays")
    print(f"event to page: {min(delays)} to {max(delays)} ms (200 are wanted at most)")


def looks_well(browser):
    for scheme in ("dark", "light"):
        browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {
            "features": [{"name": "prefers-color-scheme", "value": scheme}]})
        least = browser.run(CONTRAST)
        check(f"texts can be read when it is {scheme}", least >= CONTRAST_LEAST, least)
    for width in (NARROW, WIDE):
        browser.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
            "width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False})
        check(f"it fits {width} pixels", browser.run("return document.documentElement.scrollWidth <= innerWidth"))


def markup_is_text(lab, browser, program):
    with Program(lab, [program, "--mib", "8", "--rest", "50"], "--name", MARKUP, busy=True, stdout=subprocess.DEVNULL) as other:
        other.comes_to("it runs", lambda app: app["state"] == "running")
        browser.sees("#programs", MARKUP)
        browser.sees("#devices", MARKUP)
        expect("a name is no element", browser.run("return document.querySelectorAll('img').length"), 0)
    until("it is gone", lambda: MARKUP not in browser.text("#programs"))


def lives_on(lab, browser, busy):
    expect("the agent stops", lab.control("agent", "stop")[0], DONE)
    browser.sees("#state", "the agent does not answer")
    expect("an agent starts", lab.control("agent", "start")[0], DONE)
    browser.sees("#state", "live")
    app = busy.comes_to("the agent knows it", lambda app: app["state"] == "running")
    until("the page has it", lambda: all(word in browser.row(app) for word in words_of(app)), lambda: browser.row(app))
    expect("a cordon is made", lab.control("drain", "cpu0", "--keep")[0], DONE)
    browser.sees("#events", "cpu0 drain")


def picture(lab, program, path):
    """Programs on three devices, moved meanwhile, as doc/page.png shows them."""
    from PIL import Image  # pylint: disable=import-outside-toplevel

    devices = lab.devices()
    rows = (("render", 0, 1800, 500), ("solver", 1, 2400, 250), ("train", 0, 700, 900), ("encode", 1, 320, 600),
            ("denoise", 2, 180, 1200))
    for device, limit in zip(devices, ("4GiB", "4GiB", "1GiB")):
        expect("a limit is set", lab.control("limit", device, "--memory", limit)[0], DONE)
    running = [Program(lab, [program, "--mib", str(mib), "--percent", "2", "--rest", str(rest)], "--name", name,
                       "--device", devices[on], busy=True, stdout=subprocess.DEVNULL) for name, on, mib, rest in rows]
    with Browser(lab) as browser:
        browser.driver.get(lab.control("page", "--json")[1]["url"])
        for turn in range(12):
            time.sleep(PICTURE_SECONDS / 12)
            if turn % 4 == 1:
                running[2 + turn // 4 % 2].control("move", devices[turn // 4 % 2 ^ 1])
        expect("a cordon is made", lab.control("drain", devices[2], "--keep")[0], DONE)
        browser.sees("#devices", "cordoned")
        browser.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
            "width": WIDE, "height": 760, "deviceScaleFactor": 1, "mobile": False})
        time.sleep(1)
        browser.driver.save_screenshot(path)
    Image.open(path).convert("RGB").quantize(64).save(path, optimize=True)


def main():
    reseat = find_reseat()
    if not reseat:
        return SKIPPED
    program, *path = sys.argv[1:]
    with Lab(("pocl", "rusticl") if path else ("pocl",), reseat) as lab:
        lab.env["RESEAT_METRICS_PORT"] = str(free_port())
        if path:
            picture(lab, program, *path)
        else:
            is_shown_and_moved(lab, program)
    return 0


if __name__ == "__main__":
    sys.exit(main())
