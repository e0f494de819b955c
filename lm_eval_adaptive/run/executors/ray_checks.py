"""What a cluster has to be before anything is asked in it: there, of one kind, large enough.

This module owns the refusals, one line each; it imports Ray inside functions.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import socket
import sys
import threading
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from lm_eval_adaptive.errors import UsageError, first_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lm_eval_adaptive.host.candidate import Candidate

REACH = 3.0  # seconds for a head to be reached
PROBE = 60.0  # seconds for a node to tell its versions
_PACKAGES = ("ray", "lm_eval", "lm-eval-adaptive")


@dataclass(frozen=True)
class Node:
    """A machine of the cluster.

    Attributes:
        name: As Ray calls it.
        resources: What it has in all.
    """

    name: str
    resources: dict[str, float]


@contextlib.contextmanager
def _own_handler_kept() -> Iterator[None]:
    """Keep what SIGTERM does here: Ray would have it end the process, and a run ends in order."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    own = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, own)


def connect(address: str) -> bool:
    """Join the cluster at an address, or make one of this machine.

    Returns:
        Whether the connection is this call's, to be ended with the run.

    Raises:
        UsageError: Ray is not installed, or there is no cluster.
    """
    try:
        import ray
    except ImportError as error:
        raise UsageError(
            "--executor ray needs Ray, which is not installed here: pip install "
            "'lm-eval-adaptive[ray]'"
        ) from error
    if ray.is_initialized():
        return False
    if address.startswith("ray://"):
        raise UsageError(
            f"--executor ray:{address}: answers cannot be streamed through Ray's client port; "
            "start on a machine of the cluster and give HOST:PORT of its head (6379), or submit "
            "the command with `ray job submit`"
        )
    if address not in ("", "auto"):
        _reach(address)
    try:
        with _own_handler_kept():
            ray.init(
                address=address or "local",
                namespace="lm-eval-adaptive",
                log_to_driver=False,
                logging_level=logging.ERROR,
                include_dashboard=False if not address else None,
            )
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise UsageError(
            f"--executor ray:{address}: no cluster to join ({first_line(error)}); start its head "
            "with `ray start --head`, with the Ray and Python of this environment"
        ) from error
    return True


def _reach(address: str) -> None:
    host, _, port = address.rpartition(":")
    if not (host and port.isdecimal()):
        raise UsageError(
            f"--executor ray:{address}: expected ray:HOST:PORT, ray:auto, or ray alone for a "
            "cluster of this machine"
        )
    try:
        socket.create_connection((host, int(port)), timeout=REACH).close()
    except (OSError, OverflowError) as error:
        raise UsageError(
            f"--executor ray:{address}: no Ray cluster answers there ({first_line(error)}); start "
            f"its head with `ray start --head --port {port}`, or leave the address out for a "
            "cluster of this machine"
        ) from error


def here() -> dict[str, str]:
    """Versions that driver and workers must share."""
    found = {"python": ".".join(map(str, sys.version_info[:2]))}
    for name in _PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def check_cluster(address: str) -> list[Node]:
    """The cluster's living nodes.

    Raises:
        UsageError: A node has other versions than the driver, or does not tell.
    """
    import ray
    from ray.exceptions import RayError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    alive = [node for node in ray.nodes() if node["Alive"]]
    packages = _PACKAGES

    def look() -> dict[str, str]:  # travels by value: a worker may lack this package
        import sys as there
        from importlib import metadata

        told = {"python": ".".join(map(str, there.version_info[:2]))}
        for name in packages:
            with_it = {each.metadata["Name"] for each in metadata.distributions(name=name)}
            if with_it:
                told[name] = metadata.version(name)
        return told

    probe = ray.remote(num_cpus=0, max_retries=0)(look)
    asked = [
        probe.options(
            scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        ).remote()
        for node in alive
    ]
    nodes = [Node(_name(node), dict(node["Resources"])) for node in alive]
    for node, answer in zip(nodes, asked, strict=True):
        try:
            told = ray.get(answer, timeout=PROBE)
        except RayError as error:
            raise UsageError(
                f"--executor ray:{address}: node {node.name} runs nothing ({first_line(error)}); "
                "see `ray status`, and take the node out or start it anew"
            ) from error
        refuse_other_versions(node.name, told)
    return nodes


def refuse_other_versions(node: str, told: Mapping[str, str]) -> None:
    """Refuse a node of another environment: its models would answer by other code.

    Raises:
        UsageError: It is one.
    """
    for name, mine in here().items():
        if told.get(name) != mine:
            raise UsageError(
                f"--executor ray: node {node} has {name} {told.get(name, 'not installed')}, the "
                f"driver has {mine}; install the same versions on every node"
            )


def needs_of(candidate: Candidate, nodes: Sequence[Node]) -> dict[str, float]:
    """What one replica takes of a node, under Ray's names.

    Raises:
        UsageError: No node has so much.
    """
    given = dict(candidate.spec.resources)
    there = any(node.resources.get("GPU", 0.0) for node in nodes)
    parallel = str(candidate.spec.model_args.get("tensor_parallel_size", 1))
    local = 0.0 if candidate.side_by_side else float(parallel) if parallel.isdecimal() else 1.0
    needs = {
        "CPU": given.pop("num_cpus", 1.0),
        "GPU": given.pop("num_gpus", local if there else 0.0),
        **given,
    }
    needs = {key: amount for key, amount in needs.items() if amount}
    if not any(_slots(node, needs) for node in nodes):
        for key, amount in needs.items():
            most = max((node.resources.get(key, 0.0) for node in nodes), default=0.0)
            if most < amount:
                raise UsageError(
                    f"model {candidate.name} asks for {amount:g} {key}, and no node of the cluster "
                    f"has more than {most:g} ({_told(nodes)}); lower its resources:, or add such a "
                    "node"
                )
        wanted = ", ".join(f"{amount:g} {key}" for key, amount in needs.items())
        raise UsageError(
            f"model {candidate.name} asks for {wanted}, and no one node has all of it "
            f"({_told(nodes)}); lower its resources:"
        )
    return needs


def replicas_of(
    candidate: Candidate, needs: Mapping[str, Mapping[str, float]], nodes: Sequence[Node]
) -> int:
    """How many replicas of a model: as many as were asked for, or its share of the room.

    Raises:
        UsageError: The cluster has no room for so many.
    """
    room = sum(_slots(node, needs[candidate.name]) for node in nodes)
    wanted = candidate.spec.replicas
    if wanted == "auto":
        return max(1, room // len(needs))
    if int(wanted) > room:
        raise UsageError(
            f"model {candidate.name} asks for {wanted} replicas, and the cluster has room for "
            f"{room} ({_told(nodes)}); lower replicas:, or say auto"
        )
    return int(wanted)


def _slots(node: Node, needs: Mapping[str, float]) -> int:
    return min(
        (int(node.resources.get(key, 0.0) // amount) for key, amount in needs.items()),
        default=sys.maxsize,
    )


def _told(nodes: Sequence[Node]) -> str:
    def what(node: Node) -> str:
        return " ".join(f"{node.resources.get(key, 0.0):g} {key}" for key in ("CPU", "GPU"))

    return "; ".join(f"{node.name}: {what(node)}" for node in nodes)


def _name(node: Mapping[str, Any]) -> str:
    return str(node.get("NodeName") or node.get("NodeManagerAddress") or node["NodeID"])
