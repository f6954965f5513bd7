"""What a command line can say of a training or an evaluation: one table for every program.

Names and defaults of the fields are those of the flags; imports nothing that is slow.
"""

import dataclasses
from typing import Any

# Other names of two values of `TrainConfig.Precision`.
PRECISION_ALIASES = {'bfloat16': 'mixed_bfloat16', 'float16': 'mixed_float16'}
# What --precision takes.
PRECISIONS = ('float32', 'tf32', 'mixed_bfloat16', 'mixed_float16', *PRECISION_ALIASES)
# What --strategy takes.
STRATEGIES = ('one_device', 'mirrored', 'multi_worker', 'tpu')


def _option(default: Any, help_text: str, choices: tuple[str, ...] = ()) -> Any:
    return dataclasses.field(default=default, metadata={'help': help_text, 'choices': choices})


@dataclasses.dataclass(frozen=True, kw_only=True)
class JobOptions:
    """What both kinds of jobs understand."""

    num_train_steps: int | None = _option(None, 'Steps in all; overrides the config.')
    num_epochs: float | None = _option(
        None, 'Length of the training in passes over the data, in place of steps.'
    )
    eval_on_train_data: bool = _option(False, 'Evaluate training data, not validation data.')
    sample_1_of_n_eval_examples: int | None = _option(
        None, 'Evaluate every n-th image; overrides the config.'
    )
    sample_1_of_n_eval_on_train_examples: int = _option(5, 'The same with --eval_on_train_data.')
    eval_samples: int | None = _option(
        None, 'Evaluate at most so many images of each reader; overrides the config.'
    )
    val_json_file: str | None = _option(
        None, 'COCO annotations to evaluate against, in place of the ground truth of the records.'
    )
    precision: str | None = _option(None, 'Type to compute in; overrides the config.', PRECISIONS)
    device: str | None = _option(
        None, "Devices to use: 'cpu', 'gpu', or some as in 'gpu:0,1'; all GPUs if not given."
    )
    cpu_affinity: str | None = _option(
        None,
        "CPU cores to run on, as in '0-7,16-23'; auto: of the cores, each worker of a machine has "
        'its share.',
    )
    intra_op_threads: int = _option(
        0, 'Threads that one operation is divided among on CPUs; 0: as many as cores.'
    )
    inter_op_threads: int = _option(
        0, 'Operations that run at the same time on CPUs; 0: as many as cores.'
    )
    private_threadpool_size: int | None = _option(
        None, 'Threads of the input pipelines alone; overrides the config. 0: those of TensorFlow.'
    )
    gpu_memory_growth: bool = _option(
        True, 'Take GPU memory as it is needed; --nogpu_memory_growth takes all at once.'
    )
    run_eagerly: bool = _option(False, 'Run without graphs: slow, but Python debuggers work.')
    jit_compile: str | None = _option(
        None,
        'Whether XLA compiles steps; overrides the config. auto: on GPUs and TPUs, not on CPUs.',
        ('auto', 'true', 'false'),
    )
    compilation_cache: str | None = _option(
        None, 'Folder that keeps what XLA has compiled, for the next start.'
    )
    record_summaries: bool = _option(True, 'Write TensorBoard events.')
    use_synthetic_data: bool = _option(
        False, 'Noise in place of all files, made once and repeated: to measure speed.'
    )
    config_override: str = _option('', 'A text proto, or a file of one, merged over the config.')
    set: tuple[str, ...] = _option(
        (), 'A field to change, e.g. train_config.batch_size=4; repeatable.'
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainOptions(JobOptions):
    """What a training understands."""

    eval_every_n_steps: int = _option(0, 'Evaluate during training, and at its end; 0 does not.')
    evaluate: bool = _option(True, '--noevaluate turns every evaluation off.')
    async_eval: bool = _option(
        False, 'Evaluate in a process of its own, while training goes on; or as the config says.'
    )
    eval_device: str | None = _option(
        None, 'Devices of --async_eval, as those of --device; cpu if neither this nor the config.'
    )
    eval_cpu_affinity: str | None = _option(
        None, 'CPU cores of --async_eval, as in 12-15,30; overrides the config.'
    )
    checkpoint_every_n: int = _option(1000, 'Steps between two checkpoints.')
    max_to_keep: int = _option(7, 'How many checkpoints to keep; 0 keeps all.')
    log_every_n: int = _option(100, 'Steps between two records in the log.')
    summary_every_n: int = _option(0, 'Steps between two TensorBoard records; 0 as --log_every_n.')
    steps_per_loop: int = _option(
        0, 'Steps in one call of the training function; 0: as many as take half a second.'
    )
    profile_steps: str | None = _option(
        None, "First and last step of a TensorBoard profile, counted from 1, as in '100,110'."
    )
    seed: int | None = _option(None, 'Makes a run repeatable; drawn and logged if not given.')
    deterministic_ops: bool = _option(
        False, 'Bitwise the same weights for the same seed; slower. Or as the config says.'
    )
    use_tpu: bool = _option(False, 'Train on TPUs.')
    tpu_name: str | None = _option(None, 'Name or address of the TPU; the local one if not given.')
    strategy: str | None = _option(
        None,
        'What trains; if not given, all workers that the environment names, or else all GPUs.',
        STRATEGIES,
    )
    num_workers: int = _option(
        1, 'Number of processes that train together; TF_CONFIG, srun or mpirun say where they are.'
    )
    worker_hosts: str | None = _option(
        None, 'Machines of the processes that mpirun starts, in the order of ranks: host0,host1.'
    )
    worker_port: int | None = _option(
        None, 'First port of each machine, with srun or mpirun; made of the job if not given.'
    )
    worker_timeout: int = _option(
        30, 'Seconds without a sign of life after which a worker counts as lost.'
    )
    start_timeout: int = _option(600, 'Seconds to wait for all workers at the start.')
    data_service: str | None = _option(
        None, 'grpc://HOST:PORT of a data service that prepares the input; overrides the config.'
    )

    @property
    def evaluates(self) -> bool:
        return self.evaluate and self.eval_every_n_steps > 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvalOptions(JobOptions):
    """What an evaluation job understands."""

    run_once: bool = _option(False, 'Evaluate the newest checkpoint only.')
    eval_timeout: int = _option(3600, 'Seconds to wait for another checkpoint.')
