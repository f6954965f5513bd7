"""Training and evaluation jobs.

`jobs` runs what a command line says; `loop.train` prepares a training, `trainer.Trainer` runs its
steps, and `step.TrainStep` is one step. Resuming is in `resume`, and what is built from the config
in `setup`. The folders hold

    checkpoints/   saving, restoring, following; the state of the input (`input_state`)
    distribution/  devices, strategies and workers, and their launcher
    evaluation/    `inference.evaluate` and what surrounds it: jobs, results, best model
    monitoring/    progress, history, speed, records of runs
"""
