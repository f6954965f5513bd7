"""Workers in processes of their own, of which a test stops or kills one."""

import os
import pathlib
import subprocess
import sys
import threading
import time

from object_detection.training.distribution.launcher import Launch

ROOT = pathlib.Path(__file__).resolve().parents[2]
TIME_LIMIT = 120  # seconds


class Workers:
    """A context of workers that train in `model_dir`, of which none outlives it.

    Attributes:
      processes: in order.
      printed: of each, its lines so far.
    """

    def __init__(self, count, model_dir, *arguments, missing=()):
        self.processes, self.printed, self._readers = [], [], []
        self._count, self._missing = count, missing
        self._arguments = [str(model_dir), *map(str, arguments)]

    def __enter__(self):
        launch = Launch(
            [sys.executable, '-m', 'tests.training.worker_run', *self._arguments], self._count
        )
        for index, own in enumerate(launch.environments()):
            lines = []
            self.printed.append(lines)
            if index in self._missing:
                self.processes.append(None)
                continue
            process = subprocess.Popen(
                launch.command,
                cwd=ROOT,
                env=os.environ | own | {'PYTHONUNBUFFERED': '1'},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            self.processes.append(process)
            reader = threading.Thread(target=_read, args=(process, lines), daemon=True)
            reader.start()
            self._readers.append(reader)
        return self

    def __exit__(self, *error):
        for process in filter(None, self.processes):
            process.kill()
            process.wait()
        for reader in self._readers:
            reader.join()

    def wait_for(self, index, text):
        """Waits until a worker prints a line with `text`."""
        deadline = time.monotonic() + TIME_LIMIT
        while not any(text in line for line in self.printed[index]):
            assert self.processes[index].poll() is None, ''.join(self.printed[index])
            assert time.monotonic() < deadline, ''.join(self.printed[index])
            time.sleep(0.05)

    def end_of(self, index):
        """Waits for the end of a worker; returns its status, the seconds and its last line."""
        started = time.monotonic()
        status = self.processes[index].wait(TIME_LIMIT)
        time.sleep(0.2)
        return status, time.monotonic() - started, (self.printed[index] or [''])[-1].strip()


def _read(process, lines):
    with process.stdout:
        # One by one: a test looks at them meanwhile.
        for line in process.stdout:
            lines.append(line)
