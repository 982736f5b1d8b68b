#!/usr/bin/env python3
"""How much of a hand-off is hidden behind the reading of the prompt, on a cluster of this machine.

Serves prompts of some lengths one after another through `baton up` and prints, as medians, what
the nodes report: the time to read the prompt, how long after the first token all its pages had
landed, and that against its limit, the larger of 3 ms and 5 % of the reading. The first step of
the decode node is apart from it. The machine must have nothing else to do.

  handoff_overlap.py --model FILE --bin build/release/bin [--prompts 512,1024,2048] [--runs 5]
                     [--link 2]

With --link the decode node stands in a network namespace (needs root), behind a link so many times
as fast as KV is made.

Ends with 1 when a length is over its limit.
"""
import argparse
import os
import pathlib
import statistics
import sys

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "e2e"), str(TESTS / "fault")]

WAIT_MS, WAIT_SHARE = 3.0, 0.05
ANSWER_TOKENS = 4


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", required=True)
    parser.add_argument("--bin", required=True, help="folder with baton and the daemons")
    parser.add_argument("--prompts", default="512,1024,2048", help="tokens of the prompts")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1, help="of each worker")
    parser.add_argument("--link", type=float, default=0, help="its speed in that of the KV")
    arguments = parser.parse_args()
    arguments.prompts = [int(length) for length in arguments.prompts.split(",")]
    if min(arguments.runs, arguments.threads, *arguments.prompts) < 1:
        parser.error("--prompts, --runs and --threads are numbers from 1")
    return arguments


def ask(client, tokens):
    """The timings of one request with a prompt of these ids."""
    response = client.post("/v1/completions", {
        "prompt": tokens, "max_tokens": ANSWER_TOKENS, "min_tokens": ANSWER_TOKENS,
        "temperature": 0, "timings": True})
    if response.status != 200:
        sys.exit(f"the cluster answered {response.status}: {response.body!r}")
    return response.json()["timings"]


def prompt_ids(count, seed):
    """Ids whose first page no other prompt has, so that nothing of it is cached."""
    return [1000 + (seed * 7919 + i * 31) % 20000 for i in range(count)]


def median(timings, name):
    return statistics.median(one[name] for one in timings)


def report(length, timings):
    """One line; whether it is within the limit."""
    wait_ms, read_ms = median(timings, "handoff_wait_ms"), median(timings, "prefill_ms")
    limit_ms = max(WAIT_MS, WAIT_SHARE * read_ms)
    rate = timings[0]["handoff_bytes"] / read_ms / 1e3
    worst_ms = max(one["handoff_wait_ms"] for one in timings)
    print(f"{length:5d} tokens: read in {read_ms:7.1f} ms, {rate:5.1f} MB of KV a second; landed "
          f"{wait_ms:6.2f} ms after the first token (worst {worst_ms:.2f}), "
          f"{100 * wait_ms / limit_ms:3.0f} % of the limit of {limit_ms:.1f} ms; first step of "
          f"decode {median(timings, 'first_step_ms'):.1f} ms")
    return wait_ms <= limit_ms


def start_here(arguments):
    from cluster import Cluster  # it finds the programs when it is imported
    return Cluster(model=arguments.model, options=["--threads", str(arguments.threads)])


def start_apart(arguments):
    import fault_cluster  # so do these
    from apart import Apart
    from link import Wire, enter_namespace
    fault_cluster.TIMES["BATON_REQUEST_TIMEOUT_MS"] = "10m"
    enter_namespace()
    return Apart("ucx", Wire(), arguments.model,
                 {"prefill": ["--threads", arguments.threads],
                  "decode": ["--threads", arguments.threads]})


def main():
    arguments = parse_arguments()
    os.environ["BATON_BIN"] = str(pathlib.Path(arguments.bin).resolve())
    cluster = start_apart(arguments) if arguments.link else start_here(arguments)
    try:
        ask(cluster.client, prompt_ids(64, 0))  # the nodes meet
        if arguments.link:
            timings = ask(cluster.client, prompt_ids(1024, 1))
            rate = arguments.link * timings["handoff_bytes"] / timings["prefill_ms"] * 1e3
            cluster.link.limit(f"{round(8 * rate)}bit", burst="256kb")
            print(f"a link of {rate / 1e6:.1f} MB/s")
        kept = True
        for length in arguments.prompts:
            timings = [ask(cluster.client, prompt_ids(length, length + run))
                       for run in range(arguments.runs)]
            kept &= report(length, timings)
    finally:
        cluster.close()
    sys.exit(0 if kept else 1)


if __name__ == "__main__":
    main()
