"""The process of one measurement: `python -m object_detection.benchmarking.worker JOB RESULT`.

JOB is the JSON of a `jobs.BenchmarkJob`; the result is written to the file RESULT as JSON.
"""

import json
import os
import pathlib
import sys
import time

_START = time.perf_counter()

from object_detection.benchmarking import jobs  # noqa: E402
from object_detection.errors import UserError  # noqa: E402
from object_detection.system import signals, tensorflow_setup  # noqa: E402


def main(arguments: list[str]) -> int:
    """Does the job; returns the exit status."""
    signals.end_with_parent()
    job, path = jobs.read(arguments[0]), pathlib.Path(arguments[1])
    try:
        result = _run(job)
    except (UserError, OSError) as error:
        path.write_text(json.dumps({'error': str(error), 'is_of_memory': False}))
        return 1
    path.write_text(json.dumps(result))
    return 0


def _run(job: jobs.BenchmarkJob) -> dict:
    if job.threads:
        # Before any library counts the cores.
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: job.threads])
    # As trainings and `tfod predict` do.
    tensorflow_setup.keep_freed_memory()
    if job.task == jobs.INFERENCE:
        tensorflow_setup.assume_constant_weights()
    tensorflow_setup.import_tensorflow()
    import tensorflow as tf

    if job.task == jobs.TRAINING:
        from object_detection.benchmarking.training import measure
    elif job.task == jobs.INFERENCE:
        from object_detection.benchmarking.inference import measure
    else:
        from object_detection.benchmarking.inference import export as measure
    imports = time.perf_counter() - _START
    try:
        result = measure(job, _START)
    except (tf.errors.ResourceExhaustedError, MemoryError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else 'out of memory'
        return {'error': f'memory ran out: {reason}', 'is_of_memory': True}
    return result | {'imports': imports}


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
