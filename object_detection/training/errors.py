"""What can stop a training or an evaluation."""


class CheckpointError(ValueError):
    """A checkpoint that is absent or does not fit the model."""


class DivergenceError(ValueError):
    """A loss or a weight that is NaN or infinite."""


class WorkerError(ValueError):
    """Another worker of a training in several processes has failed, or cannot be reached."""


# Exit status of a program that ended by a WorkerError (EX_TEMPFAIL): it can go on when all are
# started again.
LOST_WORKER_STATUS = 75
