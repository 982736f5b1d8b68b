#!/usr/bin/env python3
"""What long prompts do to the answers of others: p99 of the gaps between tokens (ITL).

Short chats run all the time, a few at once; in the second half of a round a prompt of thousands of
tokens is always being read as well. With the phases apart, one prefill and one decode node of one
thread each, on a CPU each; then the same with one decode node that reads the prompts itself and has
both CPUs (--prefill 0, what servers without the split do). Medians of several rounds, and the ratio
with long prompts to without them. The machine must have nothing else to do.

  mixed_load.py --model FILE --bin build/release/bin
"""
import argparse
import json
import os
import pathlib
import random
import selectors
import socket
import statistics
import sys
import time
import urllib.parse

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))

WORDS = "river stone light morning paper window garden letter winter bread silver road".split()


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", required=True)
    parser.add_argument("--bin", required=True, help="folder with baton and the daemons")
    parser.add_argument("--chats", type=int, default=8, help="short requests at once")
    parser.add_argument("--answer", type=int, default=128, help="tokens of a short answer")
    parser.add_argument("--gaps", type=int, default=2000, help="measured in a half round, at least")
    parser.add_argument("--long-words", type=int, default=7000, help="words of a long prompt")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    if min(arguments.chats, arguments.answer, arguments.gaps, arguments.long_words,
           arguments.rounds) < 1:
        parser.error("numbers start at 1")
    return arguments


class Stream:
    """One streamed request on a socket of its own, read as bytes come."""

    def __init__(self, address, prompt, max_tokens):
        body = json.dumps({"prompt": prompt, "max_tokens": max_tokens, "temperature": 0,
                           "ignore_eos": True, "stream": True}).encode()
        self.socket = socket.create_connection(address)
        self.socket.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: bench\r\n"
                            b"Content-Type: application/json\r\nConnection: close\r\n"
                            b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self.socket.setblocking(False)
        self.tail = b""
        self.last = None

    def take(self, now, gaps):
        """False at the end. A gap is the time between two events that came apart."""
        data = self.socket.recv(1 << 16)
        if not data:
            if b"[DONE]" not in self.tail:
                sys.exit(f"a stream ended with {self.tail[-300:]!r}")
            self.socket.close()
            return False
        events = data.count(b"data: {")
        self.tail = (self.tail + data)[-4096:]
        if events and gaps is not None:
            if self.last is not None:
                gaps.append(now - self.last)
            gaps.extend([0.0] * (events - 1))
        self.last = now if events else self.last
        return True


class Load:
    def __init__(self, url, arguments, seed):
        address = urllib.parse.urlsplit(url)
        self.address = (address.hostname, address.port)
        self.arguments = arguments
        self.random = random.Random(seed)
        self.selector = selectors.DefaultSelector()

    def start(self, words, max_tokens, is_chat):
        prompt = " ".join(self.random.choices(WORDS, k=words))
        stream = Stream(self.address, f"{self.random.random()} {prompt}", max_tokens)
        self.selector.register(stream.socket, selectors.EVENT_READ, (stream, is_chat))

    def start_chat(self):
        self.start(20, self.arguments.answer, True)

    def start_long(self):
        self.start(self.arguments.long_words, 2, False)

    def half(self, with_long):
        """Gaps of the chats, and how many long prompts were read in the meantime."""
        gaps, longs = [], 0
        for _ in range(self.arguments.chats):
            self.start_chat()
        if with_long:
            self.start_long()
        while self.selector.get_map():
            ready = self.selector.select(60)
            now = time.monotonic()
            if not ready:
                sys.exit("nothing came for 60 s")
            for key, _ in ready:
                stream, is_chat = key.data
                if stream.take(now, gaps if is_chat else None):
                    continue
                self.selector.unregister(key.fileobj)
                enough = len(gaps) >= self.arguments.gaps
                longs += not is_chat
                if not enough and is_chat:
                    self.start_chat()
                elif not enough:
                    self.start_long()
        return gaps, longs


def pin(pid, cpus):
    for task in os.listdir(f"/proc/{pid}/task"):
        os.sched_setaffinity(int(task), cpus)


def p99_ms(gaps):
    return sorted(gaps)[int(len(gaps) * 0.99)] * 1e3


def measure(arguments, prefill):
    from cluster import Cluster  # it finds the programs when it is imported

    cluster = Cluster(model=arguments.model, prefill=prefill,
                      options=["--threads", "1" if prefill else "2"])
    without, with_long, longs = [], [], 0
    try:
        if prefill:
            pids = cluster.pids()
            pin(pids["prefill-0"], {0})
            pin(pids["decode-0"], {1})
        for i in range(arguments.rounds):
            load = Load(cluster.url, arguments, i)
            without.append(p99_ms(load.half(False)[0]))
            gaps, count = load.half(True)
            with_long.append(p99_ms(gaps))
            longs += count
    finally:
        cluster.close()
    calm, mixed = statistics.median(without), statistics.median(with_long)
    what = "apart, a CPU each" if prefill else "in one node, both CPUs"
    print(f"{what}: p99 of gaps {calm:.1f} ms without long prompts, {mixed:.1f} ms with them "
          f"({longs} read), ratio {mixed / calm:.2f}", flush=True)


def main():
    arguments = parse_arguments()
    os.environ["BATON_BIN"] = arguments.bin
    if len(os.sched_getaffinity(0)) < 2:
        sys.exit("two CPUs are needed")
    measure(arguments, 1)
    measure(arguments, 0)


if __name__ == "__main__":
    main()
