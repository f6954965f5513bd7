"""A worker process of a local Beam job: Beam's own, without output, which ends with the job.

    python -m object_detection.dataset_tools.converters.beam_worker

Beam's local runner starts it and passes its task by environment variables.
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
    # The job ends its workers; otherwise each of them would print a traceback at Ctrl-C.
    signal.signal(signal.SIGINT, _be_silent)
    threading.Thread(target=_end_with, args=[os.getppid()], daemon=True).start()
    # At its import, Beam warns that clients of Google's services are not installed.
    logging.disable(logging.WARNING)
    from apache_beam.runners.worker import sdk_worker_main

    sdk_worker_main.main(sys.argv)


def _be_silent(signal_number: int, frame: types.FrameType | None) -> None:
    """Discards further output to stderr, which would report that the job has ended."""
    del signal_number, frame
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_SECONDS_BETWEEN_LOOKS)
    os._exit(1)


if __name__ == '__main__':
    main()
