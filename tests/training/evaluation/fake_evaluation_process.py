"""Stands for `worker` where tests look at the training's side: it needs no TensorFlow.

It does what a file `orders` in the output directory says, a line for each snapshot: `done STEP`,
`die`, `fail NAME_OF_ERROR`, or `wait`, which is until the connection ends. Without a line or a
step, it is done, and the checkpoint is a fake that holds its step.
"""

import contextlib
import json
import pathlib
import signal
import sys
from multiprocessing.connection import Connection

from object_detection.training.evaluation.worker import DONE, FAILED, LOG


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection = Connection(int(sys.argv[1]))
    job = connection.recv()
    orders = pathlib.Path(job.output_dir) / 'orders'
    while True:
        try:
            prefix = connection.recv()
        except EOFError:
            return
        order, _, rest = orders.read_text().partition('\n') if orders.exists() else ('', '', '')
        orders.write_text(rest)
        order, _, step = order.partition(' ')
        if order == 'die':
            signal.raise_signal(signal.SIGKILL)
        if order == 'fail':
            connection.send((FAILED, step or 'ValueError', 'expected more'))
            sys.exit(1)
        if order == 'wait':
            connection.poll(None)
            return
        index = pathlib.Path(f'{prefix}.index')
        assert index.exists()
        step = int(step or index.read_text())
        metrics = {'images': float(step)}
        results = pathlib.Path(job.output_dir) / 'eval' / 'metrics.jsonl'
        results.parent.mkdir(exist_ok=True)
        with results.open('a') as file:
            file.write(json.dumps({'step': step, 'metrics': metrics}) + '\n')
        connection.send((LOG, 20, f'at step {step}'))
        connection.send((DONE, step, {'': metrics}, 0.5))


if __name__ == '__main__':
    # The training has ended in the middle of it.
    with contextlib.suppress(ConnectionError):
        main()
