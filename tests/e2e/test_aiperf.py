"""The load tool aiperf against a whole cluster: it runs to its end, and what it says agrees with
what was asked for and with what the router says. A long test, and only where aiperf is installed:
`BATON_AIPERF`, else the one on PATH."""
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

from cluster import Cluster
from hf_tokenizer import write_tokenizer
from processes import clean_environment, real_model

AIPERF = os.environ.get("BATON_AIPERF") or shutil.which("aiperf")
RUN_DEADLINE_S = 300


@unittest.skipUnless(os.environ.get("BATON_TEST_LONG"), "a long test: set BATON_TEST_LONG")
@unittest.skipUnless(AIPERF, "aiperf is not installed: pip install aiperf==0.13.0, BATON_AIPERF")
class AiperfTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        model = real_model()
        cls.scratch = tempfile.TemporaryDirectory(prefix="baton-aiperf-")
        cls.addClassCleanup(cls.scratch.cleanup)
        cls.folder = pathlib.Path(cls.scratch.name)
        write_tokenizer(model, cls.folder / "tokenizer")
        cls.cluster = Cluster(model, options=("--context", "2048", "--threads", "1"))
        cls.addClassCleanup(cls.cluster.close)
        cls.model = cls.cluster.client.get("/v1/models").json()["data"][0]["id"]

    def counts(self):
        read = self.cluster.client.metric
        return {"requests": read("vllm:request_success_total"),
                "prompt": read("vllm:prompt_tokens_total"),
                "output": read("vllm:generation_tokens_total"),
                "firsts": read("vllm:time_to_first_token_seconds_count"),
                "first_s": read("vllm:time_to_first_token_seconds_sum")}

    def profile(self, name, kind, count, osl, *options):
        """(aiperf's report, what the router counted meanwhile, what aiperf scraped of it)."""
        folder = self.folder / name
        before = self.counts()
        # The tool does not go by a local tokenizer where HF_HUB_OFFLINE is set.
        environment = {key: value for key, value in clean_environment().items()
                       if not key.startswith("HF_")}
        ran = subprocess.run(
            [AIPERF, "profile", "-m", self.model, "-u", self.cluster.url, "--endpoint-type", kind,
             "--tokenizer", str(self.folder / "tokenizer"), "--artifact-dir", str(folder), "--ui",
             "none", "--osl", str(osl), "--request-count", str(count), "--extra-inputs",
             "ignore_eos:true", "--extra-inputs", f"min_tokens:{osl}", *options],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environment,
            cwd=self.folder, timeout=RUN_DEADLINE_S, check=False)
        self.assertEqual(ran.returncode, 0, ran.stdout[-3000:] + ran.stderr[-3000:])
        report = json.loads((folder / "profile_export_aiperf.json").read_text())
        scraped = json.loads((folder / "server_metrics_export.json").read_text())
        after = self.counts()
        seen = {key: after[key] - before[key] for key in before}
        self.assertEqual(report["error_summary"], [])
        self.assertEqual(report["request_count"]["avg"], count)
        self.assertEqual(seen["requests"], count)
        print(f"{name}: " + ", ".join(
            f"{key} {report[key]['avg']:.1f} {report[key]['unit']}" for key in
            ("request_throughput", "input_sequence_length", "output_sequence_length",
             "time_to_first_token", "inter_token_latency", "request_latency") if key in report))
        return report, seen, scraped

    def check_times(self, report, seen):
        """The client's clock runs before the router's, and stops behind it."""
        ttft_ms = report["time_to_first_token"]["avg"]
        self.assertGreaterEqual(ttft_ms, seen["first_s"] * 1e3 / seen["firsts"])
        self.assertLessEqual(ttft_ms, report["request_latency"]["avg"])
        self.assertGreater(report["inter_token_latency"]["avg"], 0)

    def test_chat_by_its_own_counts(self):
        report, seen, scraped = self.profile("chat", "chat", 10, 16, "--streaming", "--isl", "64",
                                             "--concurrency", "2")
        self.assertAlmostEqual(report["input_sequence_length"]["avg"], 64, delta=2)
        # A character may be cut in two at the end of an answer: the text has a token less then.
        self.assertAlmostEqual(report["output_sequence_length"]["avg"], 16, delta=2)
        self.assertEqual(report["usage_completion_tokens"]["avg"], 16)
        self.assertEqual(seen["output"], 160)
        self.check_times(report, seen)
        self.assertEqual(scraped["summary"]["endpoints_successful"],
                         [self.cluster.url + "/metrics"])
        series, = scraped["metrics"]["vllm:time_to_first_token_seconds"]["series"]
        self.assertEqual(series["stats"]["count"], 10)

    def test_completions_at_a_rate(self):
        report, seen, _ = self.profile(
            "completions", "completions", 40, 48, "--streaming", "--isl", "200", "--request-rate",
            "4", "--arrival-pattern", "poisson", "--use-server-token-count")
        self.assertEqual(report["output_sequence_length"]["avg"], 48)
        self.assertAlmostEqual(report["input_sequence_length"]["avg"], 200, delta=2)
        self.assertEqual(seen["prompt"], report["input_sequence_length"]["avg"] * 40)
        self.assertEqual(seen["output"], 1920)
        self.check_times(report, seen)

    def test_usage_in_every_chunk_and_what_is_cached(self):
        report, seen, _ = self.profile(
            "cached", "chat", 16, 16, "--streaming", "--isl", "64", "--concurrency", "2",
            "--use-server-token-count", "--per-chunk-usage", "--num-prefix-prompts", "1",
            "--prefix-prompt-length", "200")
        self.assertEqual(report["output_sequence_length"]["avg"], 16)
        self.assertEqual(seen["output"], 256)
        self.check_times(report, seen)
        cached = report["usage_prompt_cache_read_tokens"]["avg"]
        self.assertGreater(cached, 0)
        self.assertLess(cached, report["usage_prompt_tokens"]["avg"])

    def test_whole_answers(self):
        report, seen, _ = self.profile("whole", "chat", 8, 16, "--isl", "64", "--concurrency", "4",
                                       "--use-server-token-count")
        self.assertNotIn("time_to_first_token", report)
        self.assertEqual(report["output_sequence_length"]["avg"], 16)
        self.assertEqual(seen["output"], 128)


if __name__ == "__main__":
    unittest.main(verbosity=2)
