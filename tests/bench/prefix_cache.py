#!/usr/bin/env python3
"""What known beginnings and the order of prompts are worth, as times to the first token.

Prompts that share a long system prompt come at once, and one of them again, with the prefix cache
and without it; then short prompts, alone and while a long one is always being read. One prefill and
one decode node of one thread each, on a CPU each. The machine must have nothing else to do.

  prefix_cache.py --model FILE --bin build/release/bin
"""
import argparse
import http.client
import json
import os
import pathlib
import random
import statistics
import sys
import threading
import time
import urllib.parse

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))

WORDS = "river stone light morning paper window garden letter winter bread silver road".split()


def words(count):
    return " ".join(random.choices(WORDS, k=count))


def first_token_s(url, prompt):
    address = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=120)
    body = json.dumps({"prompt": prompt, "max_tokens": 2, "temperature": 0, "ignore_eos": True,
                       "stream": True})
    start, first, done = time.monotonic(), None, False
    connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
    for line in connection.getresponse():
        if first is None and b'"text"' in line:
            first = time.monotonic() - start
        done = done or b"[DONE]" in line
    connection.close()
    if first is None or not done:
        sys.exit(f"a stream ended with {line!r}")
    return first


def shared(cluster, arguments):
    """The last first token of prompts that came at once, and that of one of them again."""
    system, times = words(arguments.system), []
    prompts = [f"{system} {words(20)}" for _ in range(arguments.count)]
    threads = [threading.Thread(target=lambda p=prompt: times.append(first_token_s(cluster.url, p)))
               for prompt in prompts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return max(times), first_token_s(cluster.url, prompts[0])


def beside_long(cluster, arguments):
    """Medians of short prompts alone and beside a long one, and that of the long ones."""
    alone = [first_token_s(cluster.url, words(60)) for _ in range(arguments.shorts)]
    ended, longs = threading.Event(), []

    def read_longs():
        while not ended.is_set():
            longs.append(first_token_s(cluster.url, words(arguments.long)))
    reader = threading.Thread(target=read_longs)
    reader.start()
    beside = [first_token_s(cluster.url, words(60)) for _ in range(arguments.shorts)]
    ended.set()
    reader.join()
    return tuple(map(statistics.median, (alone, beside, longs)))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", required=True)
    parser.add_argument("--bin", required=True, help="folder with baton and the daemons")
    parser.add_argument("--count", type=int, default=8, help="prompts of one system prompt")
    parser.add_argument("--system", type=int, default=1990, help="words of a system prompt")
    parser.add_argument("--long", type=int, default=3000, help="words of a long prompt")
    parser.add_argument("--shorts", type=int, default=20, help="short prompts, alone and beside")
    arguments = parser.parse_args()
    if min(arguments.count, arguments.system, arguments.long, arguments.shorts) < 1:
        parser.error("numbers start at 1")
    os.environ["BATON_BIN"] = arguments.bin
    from cluster import Cluster  # it finds the programs when it is imported

    times = {}
    for option in ("--no-prefix-cache", None):
        options = ["--threads", "1", *([option] if option else [])]
        cluster = Cluster(model=arguments.model, options=options)
        try:
            times[option] = shared(cluster, arguments)
            if option is None:
                alone, beside, long = beside_long(cluster, arguments)
        finally:
            cluster.close()
    (all_anew, anew), (all_known, known) = times["--no-prefix-cache"], times[None]
    print(f"{arguments.count} prompts of one beginning at once, the last first token: anew "
          f"{all_anew:.2f} s, known {all_known:.2f} s, ratio {all_anew / all_known:.1f}")
    print(f"one of them again: anew {anew:.3f} s, known {known:.3f} s, ratio {anew / known:.0f}")
    print(f"short prompts: alone {alone * 1e3:.0f} ms, beside a long one {beside * 1e3:.0f} ms, "
          f"{beside / long:.2f} of the long one's {long:.2f} s")


if __name__ == "__main__":
    main()
