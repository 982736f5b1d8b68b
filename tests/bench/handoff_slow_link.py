#!/usr/bin/env python3
"""What a slow link does to a prefill node: nothing until its pages are full, then it waits.

A decode node stands in a network namespace behind a link of the kernel (veth with a token bucket;
needs root). A burst of prompts, all of one length, is read once with the link as fast as it is and
once at a fraction of the rate at which the prompts' KV is made. Compared are the tokens a second
from the first of the prompts to the last that fits in the page pool beside the others, by the times
of their first tokens; then it is told how many prompts waited for pages that hand-offs held, and
how long the link took for all. The machine must have nothing else to do.

  handoff_slow_link.py --model FILE --bin build/release/bin [--share 0.25] [--rounds 2]
"""
import argparse
import os
import pathlib
import statistics
import sys
import threading
import time

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "e2e"), str(TESTS / "fault")]

PAGE_TOKENS, CONTEXT = 64, 2048


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", required=True)
    parser.add_argument("--bin", required=True, help="folder with the daemons")
    parser.add_argument("--mover", default="ucx")
    parser.add_argument("--prompt", type=int, default=512, help="tokens of a prompt")
    parser.add_argument("--pool", default="68M", help="--kv-memory of the prefill node")
    parser.add_argument("--share", type=float, default=0.25, help="of the link in the KV's rate")
    parser.add_argument("--rounds", type=int, default=2)
    return parser.parse_args()


def burst(client, length, count, seed):
    """When each of the prompts had its first token, ascending, in seconds; all answers are read."""
    begun, firsts, faults = time.monotonic(), [], []

    def ask(number):
        ids = [1000 + ((seed + number) * 7919 + i * 31) % 20000 for i in range(length)]
        try:
            events = client.stream("/v1/completions", {
                "prompt": ids, "max_tokens": 2, "min_tokens": 2, "temperature": 0})
            first = True
            for event in events:
                if "error" in event:
                    raise AssertionError(str(event))
                if first:
                    firsts.append(time.monotonic() - begun)
                first = False
        except (AssertionError, OSError) as fault:
            faults.append(fault)
    threads = [threading.Thread(target=ask, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if faults:
        sys.exit(f"{len(faults)} of {count} requests failed: {faults[0]}")
    return sorted(firsts), time.monotonic() - begun


def speed(firsts, length, fit):
    """Tokens a second from the first first token to the last of those that fit."""
    return (fit - 1) * length / (firsts[fit - 1] - firsts[0])


def main():
    arguments = parse_arguments()
    os.environ["BATON_BIN"] = str(pathlib.Path(arguments.bin).resolve())
    import fault_cluster  # they find the programs when they are imported
    from apart import Apart
    from link import Wire, enter_namespace

    fault_cluster.TIMES.update({"BATON_REQUEST_TIMEOUT_MS": "10m"})
    enter_namespace()
    apart = Apart(arguments.mover, Wire(), arguments.model,
                  {"prefill": ["--kv-memory", arguments.pool, "--context", CONTEXT],
                   "decode": ["--max-requests", 64, "--kv-memory", "1G"]})
    try:
        run(apart, arguments)
    finally:
        apart.close()


def token_size(client):
    """KV bytes of a token: what the hand-off of a page moves. The nodes have met then."""
    answer = client.post("/v1/completions", {
        "prompt": list(range(1000, 1000 + PAGE_TOKENS)), "max_tokens": 2, "min_tokens": 2,
        "timings": True})
    return answer.json()["timings"]["handoff_bytes"] // PAGE_TOKENS


def run(apart, arguments):
    length = arguments.prompt
    token_bytes = token_size(apart.client)
    pages = next(worker["pages_total"] for worker in apart.up() if worker["role"] == "prefill")
    fit = pages // -(-length // PAGE_TOKENS)
    count = 2 * fit
    free, slow = [], []
    for number in range(arguments.rounds):
        firsts, _ = burst(apart.client, length, count, 1000 * number + 1)
        free.append(speed(firsts, length, fit))
    rate = arguments.share * statistics.median(free) * token_bytes
    apart.link.limit(f"{round(8 * rate)}bit", burst="256kb")
    waits = prefill_waits(apart)
    for number in range(arguments.rounds):
        firsts, whole = burst(apart.client, length, count, 1000 * number + 501)
        slow.append(speed(firsts, length, fit))
    waits = prefill_waits(apart) - waits
    unlinked, linked = statistics.median(free), statistics.median(slow)
    print(f"{count} prompts of {length} tokens, {fit} fit in the pool: {unlinked:.0f} tokens/s, "
          f"{unlinked * token_bytes / 1e6:.1f} MB of KV a second\n"
          f"at a link of {rate / 1e6:.1f} MB/s: {linked:.0f} tokens/s until the pool is full, "
          f"{100 * linked / unlinked:.0f} %; {waits} prompts in {arguments.rounds} rounds waited "
          f"for pages that hand-offs held; all had landed after {whole:.1f} s, the link alone "
          f"takes {count * length * token_bytes / rate:.1f} s")


def prefill_waits(apart):
    return sum(worker["handoff"]["waits_handoffs"] for worker in apart.up()
               if worker["role"] == "prefill")


if __name__ == "__main__":
    main()
