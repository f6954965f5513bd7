"""The command-line options of trainings and evaluations, in one table for every program.

Names and defaults of the fields are those of the flags; the metadata of a field describe how the
flag is shown and list its aliases. This module imports nothing that is slow.
"""

import dataclasses
from typing import Any

from object_detection.errors import ConfigError

# Other names of two values of `TrainConfig.Precision`.
PRECISION_ALIASES = {'bfloat16': 'mixed_bfloat16', 'float16': 'mixed_float16'}
# Values of --precision.
PRECISIONS = ('float32', 'tf32', 'mixed_bfloat16', 'mixed_float16', *PRECISION_ALIASES)
# Values of --strategy.
STRATEGIES = ('one_device', 'mirrored', 'multi_worker', 'tpu')

# The sections of --help, in order.
RUN, EVALUATION, DEVICES, WORKERS, RECORDS = 'Run', 'Evaluation', 'Devices', 'Workers', 'Records'
FILES = 'Files of detections'  # of `tfod eval` without a model
SECTIONS = (RUN, EVALUATION, DEVICES, WORKERS, RECORDS, FILES)

_LARGEST_COUNT = 2**32 - 1  # what the fields hold
# Flag -> the smallest and largest number that it accepts.
_RANGES = {
    **dict.fromkeys(
        (
            'num_train_steps',
            'sample_1_of_n_eval_examples',
            'sample_1_of_n_eval_on_train_examples',
            'eval_samples',
            'log_every_n',
            'steps_per_epoch',
        ),
        (1, _LARGEST_COUNT),
    ),
    **dict.fromkeys(
        (
            'eval_every_n_steps',
            'checkpoint_every_n',
            'summary_every_n',
            'max_to_keep',
            'steps_per_loop',
            'eval_timeout',
            'log_warmup_steps',
        ),
        (0, _LARGEST_COUNT),
    ),
    **dict.fromkeys(('intra_op_threads', 'inter_op_threads', 'private_threadpool_size'), (0, 4096)),
    **dict.fromkeys(('worker_timeout', 'start_timeout'), (1, 10**6)),  # TensorFlow: milliseconds
    'seed': (0, 2**31 - 1),  # 31 bits of it make the sampling noise
}

TRAINING_EXIT_STATUSES = (
    'Exit status: 0 if all steps are done; 1 after an error; 2 for a wrong command line; 75 if '
    'another worker was lost or a checkpoint cannot be read now, 130 after ctrl-C and 143 after '
    'SIGTERM: the same command resumes from the newest checkpoint.'
)
EVALUATION_EXIT_STATUSES = (
    'Exit status: 0 if all was evaluated; 1 after an error; 2 for a wrong command line; 75 if a '
    'checkpoint cannot be read now; 130 after ctrl-C and 143 after SIGTERM.'
)


def option(
    default: Any,
    help_text: str,
    choices: tuple[str, ...] = (),
    *,
    section: str,
    aliases: tuple[str, ...] = (),
    is_hidden: bool = False,
) -> Any:
    """Returns a dataclass field that is a flag.

    Args:
      default: default value of the flag.
      help_text: description in one or two sentences.
      choices: the values that the flag accepts; () for any.
      section: section of --help, one of `SECTIONS`.
      aliases: other names of the flag.
      is_hidden: whether --help of the `tfod` command leaves it out.
    """
    return dataclasses.field(
        default=default,
        metadata={
            'help': help_text,
            'choices': choices,
            'section': section,
            'aliases': aliases,
            'is_hidden': is_hidden,
        },
    )


_NUM_TRAIN_STEPS = 'Steps in all; overrides the config.'
_NUM_EPOCHS = 'Length of the training in passes over the data, in place of steps.'


@dataclasses.dataclass(frozen=True, kw_only=True)
class JobOptions:
    """Options of both kinds of jobs."""

    num_train_steps: int | None = option(None, _NUM_TRAIN_STEPS, section=RUN)
    num_epochs: float | None = option(None, _NUM_EPOCHS, section=RUN)
    eval_on_train_data: bool = option(
        False, 'Evaluate training data, not validation data.', section=EVALUATION
    )
    sample_1_of_n_eval_examples: int | None = option(
        None, 'Evaluate every n-th image; overrides the config.', section=EVALUATION
    )
    sample_1_of_n_eval_on_train_examples: int = option(
        5, 'The same with --eval_on_train_data.', section=EVALUATION
    )
    eval_samples: int | None = option(
        None,
        'Evaluate at most so many images of each reader; overrides the config.',
        section=EVALUATION,
    )
    val_json_file: str | None = option(
        None,
        'COCO annotations to evaluate against, in place of the ground truth of the records.',
        section=EVALUATION,
    )
    precision: str | None = option(
        None, 'Type to compute in; overrides the config.', PRECISIONS, section=DEVICES
    )
    device: str | None = option(
        None,
        "Devices to use: 'cpu', 'gpu', or some as in 'gpu:0,1'; all GPUs if not given.",
        section=DEVICES,
    )
    cpu_affinity: str | None = option(
        None,
        "CPU cores to run on, as in '0-7,16-23'; auto: of the cores, each worker of a machine has "
        'its share.',
        section=DEVICES,
    )
    intra_op_threads: int = option(
        0,
        'Threads that one operation is divided among on CPUs; 0: as many as cores.',
        section=DEVICES,
    )
    inter_op_threads: int = option(
        0, 'Operations that run at the same time on CPUs; 0: as many as cores.', section=DEVICES
    )
    private_threadpool_size: int | None = option(
        None,
        'Threads of the input pipelines alone; overrides the config. 0: those of TensorFlow.',
        section=DEVICES,
    )
    gpu_memory_growth: bool = option(
        True,
        'Take GPU memory as it is needed; --nogpu_memory_growth takes all at once.',
        section=DEVICES,
    )
    run_eagerly: bool = option(
        False, 'Run without graphs: slow, but Python debuggers work.', section=DEVICES
    )
    jit_compile: str | None = option(
        None,
        'Whether XLA compiles steps; overrides the config. auto: on GPUs and TPUs, not on CPUs.',
        ('auto', 'true', 'false'),
        section=DEVICES,
    )
    compilation_cache: str | None = option(
        None, 'Folder that keeps what XLA has compiled, for the next start.', section=DEVICES
    )
    record_summaries: bool = option(True, 'Write TensorBoard events.', section=RECORDS)
    log_tensorboard: str | None = option(
        None,
        'Folder of the TensorBoard events: train and eval/NAME in it; model_dir if not given.',
        section=RECORDS,
    )
    log_file: str | None = option(
        None,
        "File to which losses, metrics and speed are added as lines of JSON of NVIDIA's DLLogger.",
        section=RECORDS,
    )
    callbacks: tuple[str, ...] = option(
        (),
        'What is called as it goes: wandb, mlflow or a part of --plugin, with options as in '
        'wandb:project=NAME,mode=offline; repeatable.',
        section=RECORDS,
    )
    strict_data: bool = option(
        False,
        'End at the first record that cannot be used, or has a wrong box, rather than skip it.',
        section=RUN,
    )
    max_bad_records_share: float | None = option(
        None,
        'Largest share of such records, 0 to 1, that does not end the run; overrides the config.',
        section=RUN,
    )
    use_synthetic_data: bool = option(
        False, 'Noise in place of all files, made once and repeated: to measure speed.', section=RUN
    )
    config_override: str = option(
        '', 'A text proto, or a file of one, merged over the config.', section=RUN
    )
    set: tuple[str, ...] = option(
        (), 'A field to change, e.g. train_config.batch_size=4; repeatable.', section=RUN
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainOptions(JobOptions):
    """Options of a training."""

    steps_per_epoch: int | None = option(
        None, 'Steps that count as one epoch; the records are counted if not given.', section=RUN
    )
    eval_every_n_steps: int = option(
        0,
        'Evaluate at each n-th step, and at the end of the training; 0 never evaluates.',
        section=EVALUATION,
        aliases=('eval_every_n',),
    )
    evaluate: bool | None = option(
        None,
        'On where --eval_every_n_steps is given; --noevaluate turns that off.',
        section=EVALUATION,
    )
    async_eval: bool = option(
        False,
        'Evaluate in another process while the training continues; or as the config says.',
        section=EVALUATION,
    )
    eval_device: str | None = option(
        None,
        'Devices of --async_eval, as those of --device; cpu if neither this nor the config.',
        section=EVALUATION,
    )
    eval_cpu_affinity: str | None = option(
        None, 'CPU cores of --async_eval, as in 12-15,30; overrides the config.', section=EVALUATION
    )
    checkpoint_every_n: int = option(
        1000, 'Steps between two checkpoints.', section=RUN, aliases=('checkpoint_every_n_steps',)
    )
    max_to_keep: int = option(7, 'How many checkpoints to keep; 0 keeps all.', section=RUN)
    log_every_n: int | None = option(
        None,
        'Steps between two records in the log and in train/history.jsonl; 100 if not given, or a '
        'fiftieth of all steps if that is less.',
        section=RECORDS,
        aliases=('log_every_n_steps',),
    )
    summary_every_n: int = option(
        0,
        'Steps between two TensorBoard records; 0 as --log_every_n.',
        section=RECORDS,
        aliases=('summary_every_n_steps',),
    )
    steps_per_loop: int = option(
        0,
        'Steps in one call of the training function; 0: as many as take half a second.',
        section=DEVICES,
    )
    log_warmup_steps: int = option(
        0,
        'First steps of a run that its averages (train/averages.jsonl, --log_file) leave out, '
        'in addition to those that build graphs.',
        section=RECORDS,
    )
    profile_steps: str | None = option(
        None,
        "First and last step of a TensorBoard profile, counted from 1, as in '100,110'.",
        section=RECORDS,
    )
    seed: int | None = option(
        None, 'Makes a run repeatable; drawn and logged if not given.', section=RUN
    )
    deterministic_ops: bool = option(
        False,
        'Bitwise the same weights for the same seed; slower. Or as the config says.',
        section=RUN,
    )
    strategy: str | None = option(
        None,
        'What trains; if not given, all workers that the environment names, or else all GPUs.',
        STRATEGIES,
        section=DEVICES,
    )
    use_tpu: bool = option(False, 'Another name of --strategy tpu.', section=DEVICES)
    tpu_name: str | None = option(
        None,
        'Name or address of the TPU, the local one if not given; implies --strategy tpu.',
        section=DEVICES,
    )
    num_workers: int = option(
        1,
        'Number of processes that train together, which is checked; TF_CONFIG, srun, mpirun or '
        '`tfod launch` say where they are.',
        section=WORKERS,
        aliases=('num_processes',),
    )
    worker_hosts: str | None = option(
        None,
        'Machines of the processes that mpirun starts, in the order of ranks: host0,host1.',
        section=WORKERS,
        aliases=('hosts',),
    )
    worker_port: int | None = option(
        None,
        'First port of each machine, with srun or mpirun; made of the job if not given.',
        section=WORKERS,
    )
    worker_timeout: int = option(
        30, 'Seconds without a sign of life after which a worker counts as lost.', section=WORKERS
    )
    start_timeout: int = option(
        600, 'Seconds to wait for all workers at the start.', section=WORKERS
    )
    data_service: str | None = option(
        None,
        'grpc://HOST:PORT of a data service that prepares the input; overrides the config.',
        section=WORKERS,
    )

    @property
    def evaluates(self) -> bool:
        return self.evaluate is not False and self.eval_every_n_steps > 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvalOptions(JobOptions):
    """Options of an evaluation job."""

    # The records of the training say when it ends; without records, these options may say it.
    num_train_steps: int | None = option(None, _NUM_TRAIN_STEPS, section=RUN, is_hidden=True)
    num_epochs: float | None = option(None, _NUM_EPOCHS, section=RUN, is_hidden=True)
    run_once: bool = option(False, 'Evaluate the newest checkpoint only.', section=RUN)
    eval_timeout: int = option(3600, 'Seconds to wait for another checkpoint.', section=RUN)


def check_ranges(options: JobOptions) -> None:
    """Checks that numbers are within the range of their flag.

    Raises:
      ConfigError: if a number is out of range; the message names the flag.
    """
    for name, (lowest, highest) in _RANGES.items():
        number = getattr(options, name, None)
        if number is not None and not lowest <= number <= highest:
            raise ConfigError(
                f'--{name}: expected {lowest} to {highest}, or leave it out. Received: {number}.'
            )
