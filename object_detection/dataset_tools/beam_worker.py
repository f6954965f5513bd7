"""A worker process of a local Beam job: Beam's own, but quiet, and it does not outlive the job.

    python -m object_detection.dataset_tools.beam_worker

Beam's local runner starts it, with what it is to do in its environment.
"""

import logging
import os
import signal
import sys
import threading
import time
import types

_SECONDS_BETWEEN_LOOKS = 1.0


def main() -> None:
    # The job ends its workers; each of them would print a traceback of its own at Ctrl-C.
    signal.signal(signal.SIGINT, _be_silent)
    threading.Thread(target=_end_with, args=[os.getppid()], daemon=True).start()
    # Beam warns at its import that clients of Google's services are not installed.
    logging.disable(logging.WARNING)
    from apache_beam.runners.worker import sdk_worker_main

    sdk_worker_main.main(sys.argv)


def _be_silent(signal_number: int, frame: types.FrameType | None) -> None:
    """Drops what is still written to the standard error: complaints that the job has gone."""
    del signal_number, frame
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_SECONDS_BETWEEN_LOOKS)
    os._exit(1)


if __name__ == '__main__':
    main()
