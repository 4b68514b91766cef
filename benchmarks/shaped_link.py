"""Two hosts on one machine: network namespaces joined by a link of a given rate (root, Linux).

The link is a veth pair; ``tc``'s token bucket filter shapes both directions.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

_ADDRESSES = ("10.201.17.1", "10.201.17.2")
# netfilter's queue: how long a packet may wait, and how many bytes may pass at once
_LATENCY, _BURST = "50ms", "64kb"


@dataclass(frozen=True)
class Host:
    """One end of the link.

    Attributes:
        namespace: its network namespace.
        interface: the end of the link in it.
        address: of that interface.
    """

    namespace: str
    interface: str
    address: str

    def command(self, arguments: list[str]) -> list[str]:
        """The command line that runs a command on this host."""
        return ["ip", "netns", "exec", self.namespace, *arguments]


def unavailable() -> str:
    """Why no shaped link can be made here; '' if one can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [tool for tool in ("ip", "tc") if shutil.which(tool) is None]
    if missing:
        return f"{' and '.join(missing)} not found; install iproute2"
    try:
        with shaped_link("100mbit"):
            return ""
    except subprocess.CalledProcessError as error:
        return f"{' '.join(error.cmd)}: {error.stderr.strip()}"


@contextmanager
def shaped_link(rate: str) -> Iterator[tuple[Host, Host]]:
    """Two hosts; both and the link are gone afterwards.

    Args:
        rate: as ``tc`` writes it, such as ``100mbit``.

    Raises:
        subprocess.CalledProcessError: ``ip`` or ``tc`` refuses.
    """
    tag = f"sprint{os.getpid() % 100000}"
    hosts = tuple(
        Host(f"{tag}-{end}", f"{tag}{end}", address) for end, address in enumerate(_ADDRESSES)
    )
    try:
        for host in hosts:
            _run("ip", "netns", "add", host.namespace)
        _run("ip", "link", "add", hosts[0].interface, "type", "veth", "peer", hosts[1].interface)
        for host in hosts:
            _run("ip", "link", "set", host.interface, "netns", host.namespace)
            _on(host, "ip", "addr", "add", f"{host.address}/24", "dev", host.interface)
            _on(host, "ip", "link", "set", host.interface, "up")
            _on(host, "ip", "link", "set", "lo", "up")
            shape = ["rate", rate, "burst", _BURST, "latency", _LATENCY]
            _on(host, "tc", "qdisc", "add", "dev", host.interface, "root", "tbf", *shape)
        yield hosts[0], hosts[1]
    finally:
        for host in hosts:
            subprocess.run(
                ["ip", "netns", "delete", host.namespace], check=False, capture_output=True
            )


def _run(*arguments: str) -> None:
    subprocess.run(arguments, check=True, capture_output=True, text=True)


def _on(host: Host, *arguments: str) -> None:
    _run(*host.command(list(arguments)))
