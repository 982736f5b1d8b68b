"""Every point of transfer/fault.def with every action it can suffer, in every process that passes
it: a cluster each, in which request after request meets the next of them."""
import http.client
import unittest

from fault_cluster import FaultCluster, fault_table, prompts, wait_for

TABLE = fault_table()
NAMES = ("prefill-0", "decode-0")
REQUESTS_MAX = 60

# Which process passes a point, and what has to go wrong for it to come there at all.
ROUTER = {"link-out": (), "link-in": (), "dispatch": (), "token-in": ()}
PREFILL = {"link-out": (), "link-in": (), "engine-step": (), "hello": (), "offer": (),
           "data-send": (), "done": (), "abort": ("done:1+:drop",)}
DECODE = {"link-out": (), "link-in": (), "engine-step": (), "welcome": (), "grant": (),
          "data-receive": (), "landed": (), "abort": ("data-receive:1+:corrupt",)}

# In this order: what ends the process comes last, and what costs a connection before what does not.
ORDER = ("drop", "corrupt", "short", "refuse", "delay", "stop", "die")


class Points:
    """One method a point is added below."""

    node = None

    def suffer(self, point, companions):
        actions = [action for action in ORDER if action in TABLE[point]]
        if self.node == "router":
            actions.remove("die")  # the cluster's end: test_router_dies
        faults = [f"{point}:{i + 1}:{action}" for i, action in enumerate(actions)]
        cluster = FaultCluster("--fault", f"{self.node}=" + ",".join([*faults, *companions]))
        self.addCleanup(cluster.close)
        texts = prompts(4)
        for i in range(REQUESTS_MAX):
            # Without one of the two the other reads prompts itself, and nobody passes the point.
            cluster.wait_up(NAMES)
            answered = cluster.ask(texts[i % 4], i % 2 == 1)
            fired = cluster.fired(self.node, point)
            if fired == actions:
                break
            # Nodes that know each other do not greet again: one of them has to be another.
            if answered and point in ("hello", "welcome"):
                other = NAMES[1] if self.node == NAMES[0] else NAMES[0]
                cluster.cluster.wait_back(other, cluster.cluster.kill(other))
        self.assertEqual(fired, actions, cluster.cluster.words())
        if companions:  # they would go on: a process without them takes over
            if "die" not in actions:
                cluster.cluster.kill(self.node)
        if "die" in actions or companions:
            wait_for(lambda: cluster.log(self.node).count("ready: ") > 1, f"a new {self.node}")
        cluster.assert_serves(NAMES)


def add_points(case, table):
    for point, companions in table.items():
        def method(self, point=point, companions=companions):
            self.suffer(point, companions)
        method.__doc__ = None
        setattr(case, "test_" + point.replace("-", "_"), method)


class RouterPoints(Points, unittest.TestCase):
    node = "router"

    def test_table_is_covered(self):
        covered = {**ROUTER, **PREFILL, **DECODE}
        self.assertEqual(set(covered), set(TABLE))
        self.assertEqual({action for actions in TABLE.values() for action in actions}, set(ORDER))

    def test_router_dies(self):
        """Whatever it was doing: the clients see an end, and the cluster ends in words."""
        for point in ("dispatch", "token-in", "link-out"):
            cluster = FaultCluster("--fault", f"router={point}:2:die")
            with self.assertRaises((OSError, http.client.HTTPException)):
                for prompt in prompts(4):
                    cluster.ask(prompt, False)
            cluster.waker.over.set()
            self.assertEqual(cluster.cluster.process.wait(60), 1)
            self.assertIn("router was killed by signal 9", cluster.cluster.words())
            cluster.cluster.scratch.cleanup()


class PrefillPoints(Points, unittest.TestCase):
    node = "prefill-0"


class DecodePoints(Points, unittest.TestCase):
    node = "decode-0"


add_points(RouterPoints, ROUTER)
add_points(PrefillPoints, PREFILL)
add_points(DecodePoints, DECODE)

if __name__ == "__main__":
    unittest.main(verbosity=2)
