"""Kills a training at random moments, starts it again each time, and compares its end.

    python benchmarks/kills.py --kills 50

A small detector is trained on generated records, in processes of its own: once without an
interruption, and once killed (SIGKILL) after random steps or inside of saves. Printed are
checkpoints that were lost or damaged by a kill, and how many arrays of the two ends differ in any
bit: weights, momentum, moving averages, step and the place in the data.
"""

import argparse
import multiprocessing
import os
import pathlib
import random
import re
import tempfile
import time

import input_pipeline
import measure

_CONFIG = 'mask_rcnn_resnet18_fpn_shapes'
_CHECKPOINT_EVERY = 3
_STEPS_A_KILL = 4
_IMAGES = 14
_TIMEOUT = 600.0  # seconds
_UNFINISHED = re.compile(r'ckpt-\d+_temp|.*\.tempstate\d+|checkpoint\.tmp.*')
_OVERRIDES = """
model { faster_rcnn {
  num_classes: 80
  image_resizer { fixed_shape_resizer { height: 64 width: 64 } }
  feature_extractor { fpn { additional_layer_depth: 8 } box_head_depth: 16 }
  first_stage_box_predictor_depth: 8
  first_stage_max_proposals: 16
  first_stage_minibatch_size: 32
  second_stage_batch_size: 8
  second_stage_box_predictor { mask_rcnn_box_predictor { predict_instance_masks: false } }
} }
train_config { batch_size: 2 deterministic_ops: true optimizer { use_moving_average: true } }
train_input_reader { load_instance_masks: false shuffle_buffer_size: 8 }
"""


def main() -> None:
    arguments = _arguments()
    moments = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        pattern, label_map = input_pipeline.write_records(folder, _IMAGES)
        stages = f'model {{ faster_rcnn {{ number_of_stages: {arguments.stages} }} }}'
        jobs = Jobs(folder, (pattern, label_map), _STEPS_A_KILL * arguments.kills, stages)
        jobs.run_to_the_end('whole')
        result = kill(jobs, arguments.kills, moments)
        result |= compare(folder / 'whole', folder / 'killed') | {
            'seed': arguments.seed,
            'stages': arguments.stages,
        }
    for key, value in result.items():
        print(f'{key:>32} {value}')
    measure.write([result], arguments.json)


class Jobs:
    """Trainings in processes of their own.

    Args:
      folder: of their model_dirs.
      records: pattern of the files, and their label map.
      num_steps: where they end.
      overrides: of their config.
    """

    def __init__(
        self, folder: pathlib.Path, records: tuple[str, str], num_steps: int, overrides: str
    ):
        self.folder = folder
        self._overrides = overrides
        self.num_steps = num_steps
        self._records = records
        self._context = multiprocessing.get_context('forkserver')
        self._context.set_forkserver_preload(['object_detection.training.loop'])

    def start(self, name: str) -> multiprocessing.Process:
        arguments = (str(self.folder / name), self._records, self.num_steps, self._overrides)
        process = self._context.Process(target=train, args=arguments)
        process.start()
        return process

    def run_to_the_end(self, name: str) -> None:
        process = self.start(name)
        process.join()
        if process.exitcode:
            log = (self.folder / f'{name}.log').read_text()
            raise SystemExit(f'The training failed ({process.exitcode}): {log[-2000:]}')


def train(model_dir: str, records: tuple[str, str], num_steps: int, overrides: str) -> None:
    """Trains on, in a process of its own."""
    with open(f'{model_dir}.log', 'a') as log:
        os.dup2(log.fileno(), 2)

    from google.protobuf import text_format

    from object_detection.protos import pipeline_pb2
    from object_detection.training import loop
    from object_detection.training.monitoring.run_types import Intervals

    config = pipeline_pb2.TrainEvalPipelineConfig()
    sample = pathlib.Path(measure.find_config(_CONFIG)).read_text()
    for text in (sample, _OVERRIDES, overrides):
        text_format.Merge(text, config)
    reader = config.train_input_reader
    reader.tf_record_input_reader.input_path[:] = [records[0]]
    reader.label_map_path = records[1]
    result = loop.train(
        config,
        model_dir,
        num_steps=num_steps,
        intervals=Intervals(log=1, checkpoint=_CHECKPOINT_EVERY),
        max_to_keep=2,
        record_summaries=False,
        seed=1,
    )
    raise SystemExit(result.exit_status)


def kill(jobs: Jobs, kills: int, moments: random.Random) -> dict[str, object]:
    """Kills `kills` times, then lets the training end; counts what went wrong."""
    directory = jobs.folder / 'killed'
    counts = {'kills': 0, 'inside of saves': 0, 'lost checkpoints': 0, 'damaged checkpoints': 0}
    newest, started = 0, time.monotonic()
    while counts['kills'] < kills:
        process = jobs.start('killed')
        inside = moments.random() < 0.3
        wait = _for_a_save if inside else _for_steps
        if not wait(process, directory, moments):
            break  # It has ended by itself.
        process.kill()
        process.join()
        counts['kills'] += 1
        counts['inside of saves'] += bool(_unfinished(directory))
        step = _newest_step(directory)
        counts['damaged checkpoints'] += step is None
        counts['lost checkpoints'] += step is not None and step < newest
        newest = step if step is not None else newest
        print(
            f'kill {counts["kills"]}: at step {_steps_done(directory)}, saved {newest}', flush=True
        )
    jobs.run_to_the_end('killed')
    return counts | {'seconds': round(time.monotonic() - started)}


def _for_steps(process, directory: pathlib.Path, moments: random.Random) -> bool:
    """Waits for some steps and a part of another; False if the training ends before."""
    goal = _steps_done(directory) + moments.randint(1, 2 * _CHECKPOINT_EVERY)
    if not _wait(process, lambda: _steps_done(directory) >= goal):
        return False
    time.sleep(moments.uniform(0.0, 0.3))
    return process.is_alive()


def _for_a_save(process, directory: pathlib.Path, moments: random.Random) -> bool:
    """Waits until a save is on its way; False if the training ends before."""
    before = _unfinished(directory)
    if not _wait(process, lambda: _unfinished(directory) - before):
        return False
    time.sleep(moments.choice([0.0, 0.0, moments.uniform(0.0, 0.01)]))
    return process.is_alive()


def _wait(process, is_there) -> bool:
    deadline = time.monotonic() + _TIMEOUT
    while not is_there():
        if not process.is_alive():
            return False
        if time.monotonic() > deadline:
            process.kill()
            raise SystemExit('The training does nothing any more.')
        time.sleep(0.0005)
    return True


def _unfinished(directory: pathlib.Path) -> set[str]:
    """Names of what only a save that has not ended leaves."""
    names = {path.name for path in directory.glob('*')}
    return {
        name
        for name in names
        if _UNFINISHED.fullmatch(name)
        or ('.data-' in name and f'{name.partition(".")[0]}.index' not in names)
    }


def _steps_done(directory: pathlib.Path) -> int:
    """The step of the last line of the history; a killed run leaves more lines than saved steps."""
    path = directory / 'train' / 'history.jsonl'
    found = re.findall(r'"step": (\d+)', path.read_text()) if path.exists() else []
    return int(found[-1]) if found else 0


def _newest_step(directory: pathlib.Path) -> int | None:
    """The step of the newest checkpoint that counts, 0 without one; None if one is damaged."""
    from object_detection.errors import CheckpointError
    from object_detection.weights import checkpoint_files, checkpoints

    try:
        state = checkpoint_files.read_state(str(directory))
        if state is None:
            return 0
        checkpoint_files.read_through(state.newest)
        return checkpoints.read_step(state.newest)
    except CheckpointError:
        return None


def compare(one: pathlib.Path, other: pathlib.Path) -> dict[str, object]:
    """Compares all arrays of the newest checkpoints of two directories."""
    import numpy as np
    import tensorflow as tf

    first, second = (
        tf.train.load_checkpoint(tf.train.latest_checkpoint(str(path))) for path in (one, other)
    )
    # How the objects lie in the file is no part of the training.
    names, others = (
        {name for name in reader.get_variable_to_shape_map() if not name.startswith('_')}
        for reader in (first, second)
    )
    differing = [
        name
        for name in names & others
        if not np.array_equal(first.get_tensor(name), second.get_tensor(name), equal_nan=False)
    ]
    return {
        'arrays': len(names),
        'arrays that differ': len(differing) + len(names ^ others),
        'steps': int(second.get_tensor('step/.ATTRIBUTES/VARIABLE_VALUE')),
    }


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split('\n', 1)[0])
    parser.add_argument('--kills', type=int, default=50)
    parser.add_argument('--stages', type=int, default=2, help='1 trains the proposals alone')
    parser.add_argument('--seed', type=int, default=0, help='of the moments')
    parser.add_argument('--json', type=pathlib.Path, default=measure.RESULTS / 'kills.json')
    return parser.parse_args()


if __name__ == '__main__':
    main()
