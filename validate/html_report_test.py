"""The HTML report in a browser: it opens at once, without an error, and tells the
value under the pointer; and without its script it says all there is to say."""

import html.parser
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SAMPLE = os.path.abspath(sys.argv.pop(1))
CHROMIUM = shutil.which("chromium")
OPENS_WITHIN_MS = 2000
PATIENCE_S = 100
LIGHT, DARK = 1, 0  # the browser's preferredColorScheme
LEAST_CONTRAST = 4.5  # of a text on its ground: WCAG 2.1, 1.4.3

# After the page's own script: how long it took, and what a pointer in the middle
# of the first row of the first map finds.
PROBE = """<script>
addEventListener("load", () => {
  const ms = performance.now();
  const map = document.querySelector("img.map");
  const box = map.getBoundingClientRect();
  const size = Number(map.naturalWidth);
  map.dispatchEvent(new PointerEvent("pointermove", {
    clientX: box.left + box.width * (size - 0.5) / size,
    clientY: box.top + box.height * 0.5 / size}));
  const out = document.getElementById(map.dataset.out).textContent;
  const ground = getComputedStyle(document.body).backgroundColor;
  const inks = [...document.querySelectorAll("h1, p, li, .verdict b, .mark, th, .dim")]
    .map(element => getComputedStyle(element).color);
  document.body.insertAdjacentHTML("beforeend",
    `<pre id="probe">loaded ${Math.round(ms)} ms; drawn ${size}; ${out}</pre>
     <pre id="colours">${[ground, ...new Set(inks)].join("; ")}</pre>`);
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

    def browse(self, path, page, scheme=LIGHT):
        """How long it took to open, the ranks drawn, what is under the pointer, and
        the colours: the ground's and then those of texts on it."""
        if CHROMIUM is None:
            if os.environ.get("CI"):
                self.fail("chromium is not installed: ./setup")
            self.skipTest("SKIPPED: chromium is not installed (./setup)")
        probed = path + ".probed.html"
        with open(probed, "w", encoding="utf-8") as file:
            file.write(page.replace("</body>", PROBE))
        ended = subprocess.run(
            [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu",
             "--disable-dev-shm-usage", "--window-size=1200,900",
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
        found = re.search(r'<pre id="probe">loaded (\d+) ms; drawn (\d+); (.*)</pre>',
                          ended.stdout.decode())
        self.assertIsNotNone(found, "the script did not run:\n" + log[-2000:])
        colours = re.search(r'<pre id="colours">(rgb.*)</pre>', ended.stdout.decode())
        return int(found[1]), int(found[2]), found[3], colours[1].split("; ")

    def check(self, hosts):
        path, page = self.make(hosts)
        loaded_ms, drawn, under_pointer, _ = self.browse(path, page)
        print(f"{hosts} ranks: {len(page) / 1e6:.1f} MB, opens in {loaded_ms} ms")
        self.assertLess(loaded_ms, OPENS_WITHIN_MS)
        self.assertEqual(drawn, hosts)
        self.assertRegex(under_pointer, rf"c00 → c0*{hosts - 1}: 1[12]\.\d GB/s")

    def test_eight_ranks_in_a_browser(self):
        self.check(8)

    def test_five_hundred_and_twelve_ranks_in_a_browser(self):
        self.check(512)

    def test_it_can_be_read_on_a_light_and_on_a_dark_screen(self):
        path, page = self.make(8)
        for scheme in (LIGHT, DARK):
            _, _, _, (ground, *inks) = self.browse(path, page, scheme)
            paper = luminance(ground)
            self.assertEqual(paper > 0.5, scheme == LIGHT, ground)
            self.assertGreater(len(inks), 2)
            for ink in inks:
                darker, lighter = sorted((paper, luminance(ink)))
                contrast = (lighter + 0.05) / (darker + 0.05)
                self.assertGreaterEqual(contrast, LEAST_CONTRAST, (ground, ink))

    def test_the_text_is_complete_without_scripts(self):
        for hosts, names in ((8, ("c02 sends at", "c01 ↔ c07 alone is slow")),
                             (512, ("c170 sends at", "c01 ↔ c511 alone is slow"))):
            _, page = self.make(hosts)
            text = Text(page).text
            for words in ("✗ Faulty", "things are wrong", *names,
                          "receiving is fine", "width 1X of 4X", "symbol_error",
                          "+15", "Suspects", "Latency", "Bisection",
                          "checked: wrong on 1 link", "simulator", "mlx5_0:1"):
                self.assertIn(words, text, hosts)

    def test_nothing_comes_from_elsewhere_and_names_are_no_markup(self):
        _, page = self.make(8)
        for address in Text(page).addresses:
            self.assertTrue(address.startswith("data:"), address[:80])
        self.assertNotIn("http://", page)
        self.assertNotIn("https://", page)
        self.assertNotIn("<script>alert", page)
        self.assertIn("&lt;script&gt;alert", page)


if __name__ == "__main__":
    unittest.main()
