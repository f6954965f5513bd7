"""What can stop a training or an evaluation."""


class CheckpointError(ValueError):
    """A checkpoint that is absent or does not fit the model."""


class DamagedCheckpointError(CheckpointError):
    """A checkpoint of which a file is absent, cut off or altered, rather than hard to read."""


class UnreadableCheckpointError(CheckpointError):
    """A checkpoint that the system cannot read now; it may be whole."""


class DivergenceError(ValueError):
    """A loss or a weight that is NaN or infinite."""


class WorkerError(ValueError):
    """Another worker of a training in several processes has failed, or cannot be reached."""


# Exit status (EX_TEMPFAIL) of a program that ended by a WorkerError or UnreadableCheckpointError,
# and can go on when all are started again.
LOST_WORKER_STATUS = 75
