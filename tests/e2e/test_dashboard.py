"""The page of the router in a real browser: what it shows of a cluster, in both colours and two
sizes. The pictures stay in the build folder."""
import os
import pathlib
import tempfile
import unittest

from browser import Browser, chromium
from cluster import Cluster, Router, tiny_model
from processes import BIN, Client, wait_for

PICTURES = BIN.parent / "screenshots"
SIZES = {"desk": (1280, 900), "phone": (390, 844)}


@unittest.skipUnless(os.environ.get("BATON_TEST_LONG"), "a long test: set BATON_TEST_LONG")
class DashboardTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        chromium()
        # A model's name is its owner's to choose; here it tries to be more than a name.
        cls.cluster = Cluster(env={"BATON_MODEL_NAME": "<img src=x onerror=document.title='oh'>"})
        cls.addClassCleanup(cls.cluster.close)
        cls.browser = Browser()
        cls.addClassCleanup(cls.browser.close)
        PICTURES.mkdir(exist_ok=True)

    def open(self, path="/"):
        self.browser.look(*SIZES["desk"])
        self.browser.go(self.cluster.url + path)
        self.browser.wait_for("document.querySelectorAll('.card').length === 2", "two workers")

    def test_shows_the_fleet_and_what_is_said(self):
        answer = self.cluster.client.chat("hello", max_tokens=8).json()
        self.open(f"/#{answer['id']}")
        self.assertIn("prefill-0", self.browser.text("#prefill"))
        self.assertIn("decode-0", self.browser.text("#decode"))
        self.browser.wait_for("document.querySelectorAll('#recent tbody tr').length > 0",
                              "the list of requests")
        self.browser.wait_for("document.querySelectorAll('.found .bar i').length >= 5",
                              "the timeline of the request")
        self.assertIn(answer["id"].removeprefix("chatcmpl-"), self.browser.text(".found"))
        self.browser.wait_for("document.querySelector('#handoffs tbody tr') !== null",
                              "a pair that met")
        self.assertIn("prefill-0 → decode-0", self.browser.text("#handoffs"))

    def test_names_stay_text(self):
        self.open()
        self.assertEqual(self.browser.text("#model"), "<img src=x onerror=document.title='oh'>")
        self.assertEqual(self.browser.value("document.images.length"), 0)

    def test_search_finds_and_says_when_there_is_nothing(self):
        self.open()
        self.browser.value("document.querySelector('#wanted').value = 'nobody';"
                           "document.querySelector('#search').requestSubmit()")
        wait_for(lambda: "no request of that id" in self.browser.text("#found"),
                 "the answer to the search")

    def test_fits_every_window_in_both_colours(self):
        self.open()
        for size, (width, height) in SIZES.items():
            backs = set()
            for scheme in ("light", "dark"):
                self.browser.look(width, height, scheme)
                self.assertLessEqual(
                    self.browser.value("document.documentElement.scrollWidth"), width,
                    f"the page is wider than a {size}")
                backs.add(self.browser.value("getComputedStyle(document.body).backgroundColor"))
                self.browser.screenshot(PICTURES / f"dashboard-{size}-{scheme}.png")
            self.assertEqual(len(backs), 2, "light and dark differ")

    def test_a_large_fleet_leaves_room_for_the_rest(self):
        self.open()
        rows, cards, width = self.browser.value("""(() => {
            const status = structuredClone(history[history.length - 1]);
            const of = (role) => status.workers.find((w) => w.role === role);
            const many = (worker) => Array.from({ length: 32 }, (_, i) =>
                Object.assign(structuredClone(worker), { name: `${"rack-".repeat(12)}${i}` }));
            const decode = many(of("decode")), prefill = many(of("prefill"));
            for (const worker of prefill)
                worker.handoff.peers = decode.map((w, i) => ({ node: w.name, state: "open",
                    open: i === 7 ? 1 : 0, bytes: 0, landed: 1, failed: 0 }));
            status.workers = prefill.concat(decode);
            draw(status);
            return [[...document.querySelectorAll("#handoffs tbody tr")].map((row) =>
                row.textContent), document.querySelectorAll(".card").length,
                document.documentElement.scrollWidth];
        })()""")
        self.assertEqual(cards, 64)
        self.assertLessEqual(width, SIZES["desk"][0])
        self.assertLess(len(rows), 40)
        for row in rows:
            self.assertIn("rack-7", row, "pairs that are at it come first")

    def test_a_clock_that_is_set_back_begins_anew(self):
        self.open()
        self.browser.wait_for("history.length > 1", "two polls")
        self.assertEqual(self.browser.value("""(() => {
            const status = structuredClone(history[history.length - 1]);
            status.now_ms -= 3600e3;
            draw(status);
            return history.length;
        })()"""), 1)

    def test_what_is_wrong_comes_first(self):
        apart = Cluster(prefill=0)
        self.addCleanup(apart.close)
        self.browser.look(*SIZES["desk"])
        self.browser.go(apart.url)
        wait_for(lambda: "No prefill node is connected" in (self.browser.text("#trouble") or ""),
                 "the trouble")
        self.assertEqual(self.browser.value("document.querySelector('main section').id"), "trouble")

    def test_each_model_has_its_own_trouble(self):
        router = Router("--model", f"second={tiny_model('qwen2')}")
        self.addCleanup(router.close)
        wait_for(lambda: Client(router.url).get("/requests").status == 200, "the journal")
        self.browser.look(*SIZES["desk"])
        self.browser.go(router.url)
        wait_for(lambda: "No decode node of second" in (self.browser.text("#trouble") or ""),
                 "the trouble")
        self.assertIn("second (no decode node)", self.browser.text("#model"))

    def test_asks_for_a_key_where_one_is_needed(self):
        key = "sk-of-the-dashboard-1"
        with tempfile.TemporaryDirectory(prefix="baton-keys-") as folder:
            keys = pathlib.Path(folder) / "keys"
            keys.write_text(f"{key} acme operator\n")
            os.chmod(keys, 0o600)
            locked = Cluster(env={"BATON_API_KEYS": str(keys)})
            self.addCleanup(locked.close)
            self.browser.look(*SIZES["desk"])
            self.browser.go(locked.url)
            self.browser.wait_for("document.querySelector('#door')?.hidden === false", "the door")
            self.browser.value(f"document.querySelector('#key').value = '{key}';"
                               "document.querySelector('#knock').requestSubmit()")
            self.browser.wait_for("document.querySelectorAll('.card').length === 2", "the workers")
            self.assertTrue(self.browser.value("document.querySelector('#door').hidden"))
        # The browser tells of each 401 that it got before.
        self.browser.complaints = [text for text in self.browser.complaints if "401" not in text]

    def tearDown(self):
        self.assertEqual(self.browser.complaints, [], "the browser has nothing to complain of")


if __name__ == "__main__":
    unittest.main()
