"""The nodes of a Ray cluster as devices of a tuning job: `pip install tilewright[ray]` on each of them.

An actor on each node does what `tw device serve` does, without its transport: Ray carries the bytes.  Whoever can reach
a Ray cluster can run anything on it, so its network is to be trusted; keys are Ray's matter.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

from .device import Lost
from .device_worker import Worker
from .error import Error

START_SECONDS = 60.0
POLL_SECONDS = 0.1


class NodeWorker:
    """Of the actor's process."""

    def __init__(self) -> None:
        self.worker = Worker()

    def facts(self) -> str:
        return json.dumps(self.worker.facts)

    def measure(self, parts: Sequence[bytes], most_bytes: int, seconds: float) -> bytes:
        return self.worker.measure(parts, most_bytes, seconds)


class RayDevice:
    """An actor on one node, made anew when it is lost."""

    def __init__(self, ray: Any, node: str, name: str, cores: float):
        self.ray, self.node, self.cores = ray, node, cores
        self.name = f"ray:{name}"
        self.actor: Any = None
        self.is_interrupted = False

    def reach(self) -> str:
        self.close()
        if self.is_interrupted:
            raise Lost("the job ended")
        pinned = self.ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node_id=self.node, soft=False)
        # All of the node's cores: nothing else is to run there while it measures.
        remote = self.ray.remote(num_cpus=self.cores, scheduling_strategy=pinned)(NodeWorker)
        self.actor = remote.remote()
        facts: str = self._wait(self.actor.facts.remote(), START_SECONDS)
        return facts

    def call(self, parts: Sequence[bytes], most_bytes: int, seconds: float) -> bytes:
        if self.actor is None:
            raise Lost("it is not reached")
        asked = self.actor.measure.remote(list(parts), most_bytes, seconds)
        answer: bytes = self._wait(asked, seconds + POLL_SECONDS)
        return answer

    def interrupt(self) -> None:
        self.is_interrupted = True

    def close(self) -> None:
        actor, self.actor = self.actor, None
        if actor is not None:
            self.ray.kill(actor)

    def _wait(self, reference: Any, seconds: float) -> Any:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not self.is_interrupted:
            ready, _ = self.ray.wait([reference], timeout=POLL_SECONDS)
            if not ready:
                continue
            try:
                return self.ray.get(reference)
            except self.ray.exceptions.RayError as error:
                cause = getattr(error, "cause", None) or error
                raise Lost(f"{type(cause).__name__}: {cause}".split("\n")[0]) from None
        self.close()
        raise Lost("the job ended" if self.is_interrupted else "it does not answer in time")


class RayPool:
    """A device for each node that is alive, for as long as the context lasts.

    `address`: "auto" for the cluster that this machine belongs to, "local" for one of its own, or as ray.init takes it.
    """

    def __init__(self, address: str = "auto"):
        try:
            import ray
            import ray.util.scheduling_strategies
        except ImportError:
            raise Error(
                "TW1501", "Ray is not installed\nhelp: pip install 'tilewright[ray]', here and on each node"
            ) from None
        self.ray: Any = ray
        self.devices: list[RayDevice] = []
        self.is_ours = not ray.is_initialized()
        if self.is_ours:
            try:
                own = {"include_dashboard": False} if address == "local" else {}
                self.ray.init(address=address, log_to_driver=False, logging_level="ERROR", **own)
            except (ConnectionError, ValueError, RuntimeError) as error:
                raise Error("TW1501", f"the Ray cluster {address!r} cannot be reached: {error}") from None
        for node in self.ray.nodes():
            if node["Alive"] and node["Resources"].get("CPU", 0) > 0:
                self.devices.append(
                    RayDevice(ray, node["NodeID"], node["NodeManagerAddress"], node["Resources"]["CPU"])
                )

    def __enter__(self) -> RayPool:
        return self

    def __exit__(self, *problem: object) -> None:
        for device in self.devices:
            device.close()
        if self.is_ours:
            self.ray.shutdown()
