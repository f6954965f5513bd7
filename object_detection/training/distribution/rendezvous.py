"""Lets workers wait for each other, before TensorFlow connects them and would wait for ever.

The chief listens at its own address, whose port TensorFlow uses afterwards; the other workers
connect to it and send their index. Imports no TensorFlow.
"""

import contextlib
import errno
import ipaddress
import os
import select
import socket
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator

from object_detection.errors import WorkerError
from object_detection.system import files
from object_detection.training.distribution.cluster import Cluster

_BETWEEN_ATTEMPTS = 0.5
# Timeout for a worker that has connected to send its index.
_GREETING_SECONDS = 2.0
# The others wait longer than the chief, which knows who is missing.
_EXTRA_SECONDS = 5.0
# Timeout for a port that an earlier run, or a program that is ending, still occupies.
_SECONDS_FOR_A_PORT = 20.0
_GO = 'go'
# A separate process, which lives until its standard input ends. TensorFlow catches SIGTERM.
_WATCH = """
import os, select, signal, sys
if not select.select([sys.stdin], [], [], float(sys.argv[2]))[0]:
    os.write(2, (sys.argv[3] + chr(10)).encode())
    os.kill(int(sys.argv[1]), signal.SIGKILL)
"""


def gather(cluster: Cluster, timeout: float) -> None:
    """Returns as soon as all workers of the cluster have called this.

    Args:
      cluster: of several workers.
      timeout: seconds to wait for the last one.

    Raises:
      WorkerError: on all workers that have come, naming those that have not.
      OSError: on the chief, if its address belongs to another machine, or was not free for 20
        seconds.
    """
    if cluster.index == 0:
        _gather_as_chief(cluster, timeout)
    else:
        _join(cluster, timeout)


def _gather_as_chief(cluster: Cluster, timeout: float) -> None:
    deadline = time.monotonic() + timeout
    host, _, port = cluster.addresses[0].rpartition(':')
    with contextlib.ExitStack() as opened:
        server = opened.enter_context(_listen_when_free(host.strip('[]'), int(port), deadline))
        joined: dict[int, socket.socket] = {}
        while True:
            # Workers that have ended meanwhile do not count.
            joined = {index: member for index, member in joined.items() if _is_open(member)}
            missing = [n for n in range(1, cluster.num_workers) if n not in joined]
            left = deadline - time.monotonic()
            if not missing or left <= 0:
                break
            server.settimeout(min(left, 1.0))
            with contextlib.suppress(TimeoutError):
                member = opened.enter_context(server.accept()[0])
                index = _index_of(member, cluster)
                if index is None:
                    member.close()
                else:
                    joined[index] = member
        answer = _missing(cluster, missing, timeout) if missing else _GO
        for member in joined.values():
            with contextlib.suppress(OSError):
                member.sendall(f'{answer}\n'.encode())
    if missing:
        raise WorkerError(answer)


def is_taken(port: int) -> bool:
    """Whether another program listens at a port of this machine."""
    try:
        _listen_everywhere(port).close()
    except OSError as error:
        return error.errno == errno.EADDRINUSE
    return False


def _listen_when_free(host: str, port: int, deadline: float) -> socket.socket:
    timeout = min(deadline - time.monotonic(), _SECONDS_FOR_A_PORT)
    for left in files.attempts(_BETWEEN_ATTEMPTS, timeout=timeout):
        try:
            return _listen(host, port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or not left:
                raise


def _listen(host: str, port: int) -> socket.socket:
    """Listens at the address that the others use; at all addresses if that is not possible."""
    with contextlib.suppress(OSError):
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # Some machines resolve their own name to 127.0.1.1, which no other machine can reach.
        if _is_loopback(address[0]) <= _is_loopback(host):
            return socket.create_server(address[:2], family=family, backlog=128)
    # It may be the address of a gateway; if the port is taken, this raises an error, too.
    return _listen_everywhere(port)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == 'localhost'


def _listen_everywhere(port: int) -> socket.socket:
    """Listens at all addresses of this machine, as TensorFlow does later."""
    try:
        return socket.create_server(
            ('', port), family=socket.AF_INET6, backlog=128, dualstack_ipv6=True
        )
    except (OSError, ValueError) as error:
        if getattr(error, 'errno', None) == errno.EADDRINUSE:
            raise
        # A machine without IPv6, or where it is switched off.
        return socket.create_server(('', port), backlog=128)


def _join(cluster: Cluster, timeout: float) -> None:
    host, _, port = cluster.addresses[0].rpartition(':')
    for left in files.attempts(_BETWEEN_ATTEMPTS, timeout=timeout + _EXTRA_SECONDS):
        # The chief does not listen yet, or ended before it answered and may be started again.
        with contextlib.suppress(OSError):
            address = (host.strip('[]'), int(port))
            with socket.create_connection(address, timeout=left) as connection:
                connection.settimeout(left)
                connection.sendall(f'{_key(cluster)} {cluster.index}\n'.encode())
                answer = connection.makefile().readline().strip()
                if answer == _GO:
                    return
                if answer:
                    raise WorkerError(answer)
    raise WorkerError(_missing(cluster, [0], timeout))


def _index_of(member: socket.socket, cluster: Cluster) -> int | None:
    """Reads the index of a worker that has connected; None if it is none of the cluster."""
    try:
        member.settimeout(_GREETING_SECONDS)
        key, _, index = member.makefile().readline(64).strip().partition(' ')
    except (OSError, UnicodeDecodeError):
        return None
    is_ours = key == _key(cluster) and index.isdigit()
    return int(index) if is_ours and 0 < int(index) < cluster.num_workers else None


def _is_open(member: socket.socket) -> bool:
    """Whether the other side, which sends nothing more, has not closed the connection."""
    return not select.select([member], [], [], 0)[0]


def _key(cluster: Cluster) -> str:
    """Returns a key that distinguishes this cluster from that of another job."""
    return f'{zlib.crc32(",".join(cluster.addresses).encode()):08x}'


def _missing(cluster: Cluster, indices: list[int], timeout: float) -> str:
    named = ', '.join(f'worker {index} ({cluster.addresses[index]})' for index in indices)
    return (
        f'{named} of {cluster.num_workers} workers did not come within {timeout:g} seconds '
        '(--start_timeout): see whether it was started and its address can be reached.'
    )


@contextlib.contextmanager
def killed_after(seconds: float, reason: str) -> Iterator[None]:
    """A context whose block is killed with the whole process if it takes longer.

    It limits calls that block Python: TensorFlow holds Python's lock while it connects the workers.

    Args:
      seconds: how long the block may take.
      reason: one sentence for standard error.
    """
    watch = subprocess.Popen(
        [sys.executable, '-I', '-S', '-c', _WATCH, str(os.getpid()), str(seconds), reason],
        stdin=subprocess.PIPE,
    )
    try:
        yield
    finally:
        watch.communicate()
