#!/usr/bin/env python3
"""A local cluster against the sum of its parts: what three processes on the same CPUs cost.

Serves requests of one shape through `baton up`, first one after another and then all at once, and
holds wall clock and CPU time against what `baton bench model` takes for the same prompts and steps
in one process. Idle CPU time comes first. The machine must have nothing else to do.

  cluster_parts.py --model FILE --bin build/release/bin
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import random
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
WORDS = "river stone light morning paper window garden letter winter bread silver road".split()


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", required=True)
    parser.add_argument("--bin", required=True, help="folder with baton and the daemons")
    parser.add_argument("--requests", type=int, default=8)
    parser.add_argument("--prompt-words", type=int, default=400)
    parser.add_argument("--answer", type=int, default=64, help="tokens of an answer")
    parser.add_argument("--threads", type=int, default=0, help="of each worker; 0: its share")
    parser.add_argument("--idle-s", type=float, default=10)
    arguments = parser.parse_args()
    if min(arguments.requests, arguments.prompt_words, arguments.answer) < 1:
        parser.error("--requests, --prompt-words and --answer are numbers from 1")
    return arguments


def cpu_seconds(pids):
    """User and system time of all threads of the processes."""
    total = 0
    for pid in pids:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        total += int(fields[11]) + int(fields[12])
    return total / TICKS_PER_S


def ask(client, arguments, seed):
    """One request with a prompt that no other shares a page with; how many tokens that has."""
    words = random.Random(seed).choices(WORDS, k=arguments.prompt_words)
    response = client.post("/v1/completions", {
        "prompt": f"{seed} " + " ".join(words), "max_tokens": arguments.answer,
        "min_tokens": arguments.answer, "temperature": 0})
    if response.status != 200:
        sys.exit(f"the cluster answered {response.status}: {response.body!r}")
    return response.json()["usage"]["prompt_tokens"]


def measured(pids, work):
    """Result, wall clock and CPU seconds of work()."""
    cpu, begin = cpu_seconds(pids), time.monotonic()
    result = work()
    return result, time.monotonic() - begin, cpu_seconds(pids) - cpu


def parts(arguments, prompt, batch, threads):
    """Seconds of one prompt and of one step, in one process."""
    output = subprocess.run(
        [f"{arguments.bin}/baton", "bench", "model", "--model", arguments.model, "--json",
         "--threads", str(threads), "--prefill", str(prompt), "--decode-batch", str(batch),
         "--context", str(prompt + arguments.answer // 2)],
        capture_output=True, text=True, check=True).stdout
    lines = [json.loads(line) for line in output.splitlines()]
    return lines[0]["time_ms"] / 1e3, lines[1]["time_ms"] / 1e3


def report(what, wall, cpu, prefill, decode, threads):
    """Two workers, each with its own threads: at best they overlap fully, at worst not at all."""
    print(f"{what}: wall {wall:.2f} s, CPU {cpu:.2f} s; parts: prefill {prefill:.2f} s and decode "
          f"{decode:.2f} s with {threads} threads; wall {wall / (prefill + decode):.2f} of their "
          f"sum, CPU {cpu / ((prefill + decode) * threads):.2f} of theirs")


def main():
    arguments = parse_arguments()
    os.environ["BATON_BIN"] = arguments.bin
    from cluster import Cluster  # it finds the programs when it is imported

    threads = arguments.threads or max(1, os.cpu_count() // 2)
    count, answer = arguments.requests, arguments.answer
    options = ["--threads", str(arguments.threads)]
    cluster = Cluster(model=arguments.model, options=options)
    try:
        pids = [*cluster.pids().values(), cluster.process.pid]
        ask(cluster.client, arguments, 0)  # the nodes meet
        _, wall, cpu = measured(pids, lambda: time.sleep(arguments.idle_s))
        print(f"idle: {100 * cpu / wall:.2f} % of one CPU in {len(pids)} processes")
        serial = measured(
            pids, lambda: [ask(cluster.client, arguments, 1 + i) for i in range(count)])
        with concurrent.futures.ThreadPoolExecutor(count) as pool:
            together = measured(pids, lambda: list(pool.map(
                lambda i: ask(cluster.client, arguments, 101 + i), range(count))))
    finally:
        cluster.close()
    prompt = round(sum(serial[0]) / count)
    prefill, step = parts(arguments, prompt, 1, threads)
    _, batch_step = parts(arguments, prompt, count, threads)
    print(f"{count} requests of {prompt} prompt tokens and {answer} answer tokens")
    report("one after another", *serial[1:], count * prefill, count * (answer - 1) * step, threads)
    report("all at once", *together[1:], count * prefill, (answer - 1) * batch_step, threads)


if __name__ == "__main__":
    main()
