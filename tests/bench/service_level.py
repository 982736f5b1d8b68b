#!/usr/bin/env python3
"""How many requests of a steady traffic are served as promised: arrivals of a Poisson process,
whose first token has to come within --ttft-ms and whose tokens then have to come --tpot-ms apart,
on average over the answer. Whoever is refused or fails has not been served.

With --long-every N each N-th prompt has --long-tokens; the p99 of the gaps between tokens (ITL) is
that of the others. The machine must have nothing else to do: this program takes its share as well.

  service_level.py --model FILE --bin build/release/bin [--rate 4]
"""
import argparse
import json
import os
import pathlib
import random
import selectors
import socket
import sys
import time
import urllib.parse

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))

SILENCE_S = 60


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", required=True)
    parser.add_argument("--bin", required=True, help="folder with baton and the daemons")
    parser.add_argument("--rate", type=float, default=4.0, help="requests a second")
    parser.add_argument("--seconds", type=float, default=60.0, help="in which requests arrive")
    parser.add_argument("--prompt-tokens", type=int, default=200)
    parser.add_argument("--answer-tokens", type=float, default=48, help="on average, geometric")
    parser.add_argument("--long-every", type=int, default=0, help="0: no long prompts")
    parser.add_argument("--long-tokens", type=int, default=3000)
    parser.add_argument("--ttft-ms", type=float, default=1000)
    parser.add_argument("--tpot-ms", type=float, default=50)
    parser.add_argument("--prefill", type=int, default=1, help="prefill nodes; 0: decode reads")
    parser.add_argument("--threads", default="1", help="of each node")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def arrivals(arguments):
    """(second, prompt's tokens, answer's tokens, whether the prompt is a long one), in order."""
    dice = random.Random(arguments.seed)
    at, count = dice.expovariate(arguments.rate), 0
    while at < arguments.seconds:
        count += 1
        is_long = arguments.long_every > 0 and count % arguments.long_every == 0
        prompt = arguments.long_tokens if is_long else arguments.prompt_tokens
        answer = 1 + int(dice.expovariate(1 / max(arguments.answer_tokens - 0.5, 0.5)))
        yield at, [dice.randrange(1000, 30000) for _ in range(prompt)], answer, is_long
        at += dice.expovariate(arguments.rate)


class Request:
    def __init__(self, address, ids, answer, is_long):
        body = json.dumps({"prompt": ids, "max_tokens": answer, "temperature": 0,
                           "ignore_eos": True, "stream": True}).encode()
        self.is_long, self.wanted = is_long, answer
        self.begin, self.times = time.monotonic(), []
        self.rest = self.tail = b""
        self.socket = socket.create_connection(address)
        self.socket.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: bench\r\n"
                            b"Content-Type: application/json\r\nConnection: close\r\n"
                            b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self.socket.setblocking(False)

    def take(self, now):
        """False at the end. Bytes that are no whole event wait for the rest."""
        data = self.socket.recv(1 << 16)
        if not data:
            self.socket.close()
            return False
        *events, self.rest = (self.rest + data).split(b"\n\n")
        self.times.extend([now] * sum(b"data: {" in event for event in events))
        self.tail = (self.tail + data)[-64:]
        return True

    def is_whole(self):
        return b"[DONE]" in self.tail and bool(self.times)

    def ttft_ms(self):
        return (self.times[0] - self.begin) * 1e3

    def tpot_ms(self):
        if len(self.times) < 2 or self.wanted < 2:
            return 0.0
        return (self.times[-1] - self.times[0]) * 1e3 / (self.wanted - 1)

    def gaps_ms(self):
        return [(b - a) * 1e3 for a, b in zip(self.times, self.times[1:])]


def run(address, arguments):
    waiting, done = list(arrivals(arguments))[::-1], []
    selector, begin = selectors.DefaultSelector(), time.monotonic()
    while waiting or selector.get_map():
        now = time.monotonic()
        while waiting and begin + waiting[-1][0] <= now:
            request = Request(address, *waiting.pop()[1:])
            selector.register(request.socket, selectors.EVENT_READ, request)
        until = begin + waiting[-1][0] - time.monotonic() if waiting else SILENCE_S
        ready = selector.select(max(until, 0))
        now = time.monotonic()
        if not ready and not waiting:
            sys.exit(f"nothing came for {SILENCE_S} s")
        for key, _ in ready:
            if not key.data.take(now):
                selector.unregister(key.fileobj)
                done.append(key.data)
    return done


def share(values, part):
    return sorted(values)[min(int(len(values) * part), len(values) - 1)] if values else 0.0


def report(done, arguments):
    whole = [request for request in done if request.is_whole()]
    served = [request for request in whole if request.ttft_ms() <= arguments.ttft_ms
              and request.tpot_ms() <= arguments.tpot_ms]
    gaps = [gap for request in whole if not request.is_long for gap in request.gaps_ms()]
    firsts, steps = [r.ttft_ms() for r in whole], [r.tpot_ms() for r in whole]
    print(f"{len(done)} requests at {arguments.rate:g}/s, {len(whole)} whole, "
          f"{len(served) / max(len(done), 1):.1%} within TTFT {arguments.ttft_ms:g} ms and "
          f"TPOT {arguments.tpot_ms:g} ms")
    print(f"TTFT p50 {share(firsts, 0.5):.0f}, p99 {share(firsts, 0.99):.0f} ms; "
          f"TPOT p50 {share(steps, 0.5):.1f}, p99 {share(steps, 0.99):.1f} ms; "
          f"ITL p99 {share(gaps, 0.99):.1f} ms of {len(gaps)} gaps of short prompts")


def main():
    arguments = parse_arguments()
    os.environ["BATON_BIN"] = arguments.bin
    from cluster import Cluster  # it finds the programs when it is imported

    cluster = Cluster(model=arguments.model, prefill=arguments.prefill,
                      options=["--threads", arguments.threads])
    try:
        address = urllib.parse.urlsplit(cluster.url)
        report(run((address.hostname, address.port), arguments), arguments)
    finally:
        cluster.close()


if __name__ == "__main__":
    main()
