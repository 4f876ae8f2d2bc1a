"""The HTML report in a browser: it opens at once, without an error, and tells the
value under the pointer; and without its script it says all there is to say."""

import html
import html.parser
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SAMPLE = os.path.abspath(sys.argv.pop(1))
CHROMIUM = shutil.which("chromium")
OPENS_WITHIN_MS = 10_000  # on a busy machine; alone it is less than one second
PATIENCE_S = 100
LIGHT, DARK = 1, 0  # the browser's preferredColorScheme
LEAST_CONTRAST = 4.5  # of a text on its ground: WCAG 2.1, 1.4.3

# After the page's own script: how long it took, what a pointer in the middle of the
# right end of the first row of the first map finds, colours, and places.
PROBE = """<script>
addEventListener("load", () => {
  const ms = Math.round(performance.now());
  const map = document.querySelector("img.map");
  const box = map.getBoundingClientRect();
  const size = Number(map.naturalWidth);
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];
  map.dispatchEvent(new PointerEvent("pointermove", {bubbles: true,
    clientX: box.left + box.width * (size - 0.5) / size,
    clientY: box.top + box.height * 0.5 / size}));
  const ground = getComputedStyle(document.body).backgroundColor;
  const inks = all("h1, p, li, .verdict b, .mark, th, .dim, a:not(.ring), .bars text")
    .map(element => getComputedStyle(element)).map(style => style.fill !== "rgb(0, 0, 0)"
      ? style.fill : style.color);
  const part = (ring) => {
    const at = ring.getBoundingClientRect();
    return {href: ring.hash, width: at.width, height: at.height,
            x: ((at.left + at.right) / 2 - box.left) / box.width * size,
            y: ((at.top + at.bottom) / 2 - box.top) / box.height * size};
  };
  const rings = all(".ring", map.parentElement).map(part);
  const cut = all("table:not(.matrix) tbody td").filter(cell => cell.offsetWidth > 0 &&
    cell.getBoundingClientRect().right > document.documentElement.clientWidth)
    .map(cell => cell.textContent);
  const figure = map.closest("figure");
  const ticks = all("input", figure).map(zoom => {
    zoom.checked = true;
    return ["across", "down"].map(axis => all(`.${axis} i`, figure)
      .filter(tick => tick.offsetWidth > 0)
      .map(tick => { const at = tick.getBoundingClientRect();
        return {text: tick.textContent, thick: axis === "down" ? at.height : at.width,
                at: axis === "down" ? at.top : at.left}; }));
  });
  // A click at a quarter of the whole map, both ways: where that place is then.
  const zooms = all("input", figure);
  zooms[0].checked = true;
  const whole = map.getBoundingClientRect();
  map.dispatchEvent(new MouseEvent("click", {bubbles: true,
    clientX: whole.left + whole.width / 4, clientY: whole.top + whole.height / 4}));
  const view = map.closest(".view").getBoundingClientRect();
  const large = map.getBoundingClientRect();
  const clicked = {zoom: zooms.findIndex(zoom => zoom.checked),
    x: (large.left + large.width / 4 - view.left) / view.width,
    y: (large.top + large.height / 4 - view.top) / view.height};
  document.body.insertAdjacentHTML("beforeend", "<pre id=probe></pre>");
  document.getElementById("probe").textContent = JSON.stringify({ms, size,
    out: document.getElementById(map.dataset.out).textContent, ground,
    inks: [...new Set(inks)], rings, cut, ticks, clicked});
});
</script></body>"""


class Text(html.parser.HTMLParser):
    """What a reader without scripts sees; and every address in the page."""

    def __init__(self, page):
        super().__init__()
        self.text = ""
        self.addresses = []
        self._hidden = 0
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self._hidden += tag in ("script", "style")
        self.addresses += [value for name, value in attrs
                           if name in ("src", "href", "action", "data")]

    def handle_endtag(self, tag):
        self._hidden -= tag in ("script", "style")

    def handle_data(self, data):
        if not self._hidden:
            self.text += data


def luminance(colour):
    """Of "rgb(28, 33, 39)": WCAG 2.1, "relative luminance"."""
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4
              for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


class HtmlReportTest(unittest.TestCase):

    def make(self, hosts):
        folder = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(shutil.rmtree, folder)
        path = os.path.join(folder, "report.html")
        subprocess.run([SAMPLE, str(hosts), path], check=True, timeout=PATIENCE_S,
                       stdout=subprocess.DEVNULL)
        with open(path, encoding="utf-8") as file:
            return path, file.read()

    def browse(self, path, page, scheme=LIGHT, width=1200):
        """What PROBE says, in a window of so many pixels."""
        if CHROMIUM is None:
            if os.environ.get("CI"):
                self.fail("chromium is not installed: ./setup")
            self.skipTest("SKIPPED: chromium is not installed (./setup)")
        probed = path + ".probed.html"
        with open(probed, "w", encoding="utf-8") as file:
            file.write(page.replace("</body>", PROBE))
        ended = subprocess.run(
            [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu",
             "--disable-dev-shm-usage", f"--window-size={width},900",
             f"--blink-settings=preferredColorScheme={scheme}",
             f"--user-data-dir={os.path.dirname(path)}/profile",
             "--enable-logging=stderr", "--dump-dom", "file://" + probed],
            env={**os.environ, "HOME": os.path.dirname(path)},
            capture_output=True, timeout=PATIENCE_S, check=True)
        log = ended.stderr.decode(errors="replace")
        # The browser's own pages talk, too.
        self.assertEqual([line for line in log.splitlines()
                          if "CONSOLE" in line and "source: chrome://" not in line],
                         [])
        found = re.search(r'<pre id="probe">(.*)</pre>', ended.stdout.decode())
        self.assertIsNotNone(found, "the script did not run:\n" + log[-2000:])
        return json.loads(html.unescape(found[1]))

    def check(self, hosts):
        path, page = self.make(hosts)
        probe = self.browse(path, page)
        print(f"{hosts} ranks: {len(page) / 1e6:.1f} MB, opens in {probe['ms']} ms")
        self.assertLess(probe["ms"], OPENS_WITHIN_MS)
        self.assertEqual(probe["size"], hosts)
        self.assertRegex(probe["out"], rf"c00 → c0*{hosts - 1}: 1[12]\.\d GB/s")

    def test_eight_ranks_in_a_browser(self):
        self.check(8)

    def test_five_hundred_and_twelve_ranks_in_a_browser(self):
        self.check(512)

    def test_it_can_be_read_on_a_light_and_on_a_dark_screen(self):
        path, page = self.make(8)
        for scheme in (LIGHT, DARK):
            probe = self.browse(path, page, scheme)
            ground, inks = probe["ground"], probe["inks"]
            paper = luminance(ground)
            self.assertEqual(paper > 0.5, scheme == LIGHT, ground)
            self.assertGreater(len(inks), 2)
            for ink in inks:
                darker, lighter = sorted((paper, luminance(ink)))
                contrast = (lighter + 0.05) / (darker + 0.05)
                self.assertGreaterEqual(contrast, LEAST_CONTRAST, (ground, ink))

    def test_a_cause_is_a_finding_and_a_row_that_leads_to_its_ring_and_back(self):
        for hosts in (8, 32, 512):
            _, page = self.make(hosts)
            verdict = re.search(r'<div class="verdict .*?</div>', page)[0]
            self.assertIn("3 things are wrong", verdict)
            findings = re.search(r'<ol class="findings">(.*?)</ol>', page, re.S)[1]
            faults = re.findall(r'<li class="fault">.*?</li>', findings, re.S)
            self.assertEqual(len(faults), 3, hosts)
            self.assertIn("reseat or replace its cable", faults[1])
            self.assertIn("symbol_error of port mlx5_0:1 grew by 15", faults[1])
            rings = re.findall(r'<a class="ring [^>]*(id="[^"]*" href="[^"]*")', page)
            rows = dict(re.findall(r'<tr id="cause-(\d+)">(.*?)</tr>', page))
            names = ("c00 → c02", f"what host c{hosts // 3:02} sends",
                     f"c01 ↔ c{hosts - 1:02}")
            for number, name in enumerate(names, 1):
                self.assertIn(name, rows[str(number)])
                self.assertIn(f'href="#ring-{number}"', rows[str(number)])
                self.assertIn(f'href="#ring-{number}"', faults[number - 1])
                self.assertIn(f'id="ring-{number}" href="#cause-{number}"', rings)
            self.assertIn(": the slowest other link", Text(page).text)
            # A row a cause (the fourth: what is slow only in company, at 512
            # hosts), the head, and that link.
            table = next(table for table in re.findall(r"<table.*?</table>", page, re.S)
                         if 'id="cause-1"' in table)
            self.assertEqual(len(re.findall("<tr", table)), len(rows) + 2)
            self.assertLessEqual(len(rows), 4)

    def test_rings_are_where_their_links_are_and_large_enough_to_be_seen(self):
        for hosts, width in ((8, 1200), (512, 1200), (512, 400)):
            path, page = self.make(hosts)
            rings = self.browse(path, page, width=width)["rings"]
            self.assertGreaterEqual(min(min(ring["width"], ring["height"])
                                        for ring in rings), 16)
            found = {number: [(ring["x"], ring["y"]) for ring in rings
                              if ring["href"] == f"#cause-{number}"]
                     for number in (1, 2, 3)}
            places = {1: [(2.5, 0.5)], 2: [(hosts / 2, hosts // 3 + 0.5)],
                      3: [(hosts - 0.5, 1.5), (1.5, hosts - 0.5)]}
            for number, wanted in places.items():
                self.assertEqual(len(found[number]), len(wanted))
                for (x, y), (wanted_x, wanted_y) in zip(found[number], wanted):
                    self.assertAlmostEqual(x, wanted_x, delta=0.1)
                    self.assertAlmostEqual(y, wanted_y, delta=0.1)

    def test_the_map_has_names_of_hosts_which_never_overlap_and_more_when_enlarged(self):
        for hosts, width, counts in ((8, 400, (8, 8, 8)), (32, 400, (16, 32, 32)),
                                     (512, 1200, (16, 64, 256)),
                                     (512, 400, (16, 64, 256))):
            path, page = self.make(hosts)
            zooms = self.browse(path, page, width=width)["ticks"]
            self.assertEqual(len(zooms), 3)
            for axes, count in zip(zooms, counts):
                for ticks in axes:
                    self.assertEqual(len(ticks), count)
                    self.assertEqual(ticks[0]["text"], "c00")
                    self.assertEqual(ticks[1]["text"], f"c{hosts // count:02}")
                    for one, next_one in zip(ticks, ticks[1:]):
                        self.assertLessEqual(one["at"] + one["thick"], next_one["at"])

    def test_a_click_enlarges_what_is_there(self):
        path, page = self.make(32)
        clicked = self.browse(path, page)["clicked"]
        self.assertEqual(clicked["zoom"], 1)
        # In the middle, but for the scroll bars.
        self.assertAlmostEqual(clicked["x"], 0.5, delta=0.05)
        self.assertAlmostEqual(clicked["y"], 0.5, delta=0.05)

    def test_no_column_is_cut_off_on_a_narrow_screen(self):
        path, page = self.make(8)
        for width in (400, 801, 1000):
            self.assertEqual(self.browse(path, page, width=width)["cut"], [], width)

    def test_the_histogram_has_an_axis_each_way(self):
        _, page = self.make(512)
        svg = re.search(r'<svg class="bars".*?</svg>', page, re.S)[0]
        labels = re.findall(r"<text[^>]*>([^<]*)</text>", svg)
        for label in ("1", "10", "10,000", "links", "0 %", "100 %",
                      "of what a healthy link of the class carries"):
            self.assertIn(label, labels)
        # Also where the tallest bar is far above the last power of ten.
        _, page = self.make(8)
        counts = [int(count) for count in re.findall(r"<title>(\d+) links? from", page)]
        self.assertIn(f">{max(counts)}</text>", page)

    def test_the_text_is_complete_without_scripts(self):
        for hosts, names in ((8, ("c02 sends at", "c01 ↔ c07 alone is slow")),
                             (512, ("c170 sends at", "c01 ↔ c511 alone is slow"))):
            _, page = self.make(hosts)
            text = Text(page).text
            for words in ("✗ Faulty", "things are wrong", *names,
                          "receiving is fine", "width 1X of 4X", "symbol_error",
                          "+15", "Links by finding", "Latency", "Bisection",
                          "checked: wrong on 1 link", "mlx5_0:1"):
                self.assertIn(words, text, hosts)

    def test_nothing_comes_from_elsewhere_and_names_are_no_markup(self):
        _, page = self.make(8)
        for address in Text(page).addresses:
            self.assertTrue(address.startswith(("data:", "#")), address[:80])
        self.assertNotIn("http://", page)
        self.assertNotIn("https://", page)
        self.assertNotIn("<script>alert", page)
        self.assertIn("&lt;script&gt;alert", page)


if __name__ == "__main__":
    unittest.main()
